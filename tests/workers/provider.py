"""A model provider that follows a plan, for the agents of other projects.

    python3 provider.py LOG [PLANS.json [KEEP]]

Serves Anthropic Messages, Chat Completions, Responses and Gemini on one loopback port, streaming or not, and prints
its address. A word in the conversation chooses the plan: `[plan:fix]`, or `[plan:fix delay=300]` for 300 ms before
each answer. The number of tool results in the request chooses the step, so that the provider keeps no state: a
conversation that is loaded again continues where it was. PLANS.json replaces steps of the plans by name.

LOG gets one JSON object per line: `asked` when a request has arrived, `served` when it has been answered, with the
exact usage. The usage follows from the request: a quarter of its bytes as input, half of that cached as soon as there
are tool results. KEEP is a folder that gets the body of every request, to look at an agent.
"""

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# Steps: lists of calls, then a text. `read`, `write` and `run` become the tools that the request offers; `tool` is
# called as written.
PLANS = {
    "fix": [
        [["read", "README.md"], ["read", "notes.txt"]],
        [["write", "written.txt", "written by the worker\n"]],
        [["run", "cat written.txt > copied.txt && ls"]],
        "The work is done.",
    ],
    # A command that ends only when it is killed, with a second process in the background. It says when it has started.
    "hang": [
        [["write", "written.txt", "written by the worker\n"]],
        [["run", "tail -f /dev/null & echo started > started.txt; tail -f /dev/null"]],
        "The command has ended.",
    ],
    # An answer that streams for minutes.
    "slow": [
        [["write", "written.txt", "written by the worker\n"]],
        {"slow": 600},
    ],
    "answer": ["The work is done."],
}
# Plans whose step is made from its number.
ENDLESS = {
    # Agents look for equal calls in a row, so each is another one. `steps=45` ends it.
    "endless": lambda step: [["run", f"echo step {step} && echo {step} >> steps.txt"]],
}
MARK = re.compile(r"\[plan:([a-z]+)((?: [a-z]+=[0-9]+)*)\]")
TITLE = "A short title"
DIRECTORY = re.compile(
    r"(?:<cwd>|[Ww]orking [Dd]irectory: |current working directory is |Workspace Directories:[*\s]*-\s*)\s*([^<\s\\\"]+)"
)

lock = threading.Lock()


class Log:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.count = 0

    def number(self):
        with lock:
            self.count += 1
            return self.count

    def write(self, **fields):
        with lock:
            self.file.write(json.dumps({"time": round(time.time(), 3), **fields}) + "\n")


def texts(value):
    """Returns all strings in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)


def choose(request, wire):
    """Returns the plan's name, its settings and the step, given a request."""
    said = "\n".join(texts(request))
    marks = MARK.findall(said)
    name, settings = marks[0] if marks else ("answer", "")
    settings = {key: int(value) for key, value in (pair.split("=") for pair in settings.split())}
    results = wire.results(request)
    offered = wire.offered(request)
    if not offered:
        return name, settings, results, TITLE
    if name in ENDLESS and results < settings.get("steps", sys.maxsize):
        return name, settings, results, ENDLESS[name](results)
    plan = PLANS.get(name, PLANS["answer"])
    done = 0
    for step in plan:
        if isinstance(step, list) and done + len(step) <= results:
            done += len(step)
            continue
        return name, settings, results, step
    return name, settings, results, plan[-1]


def spell(call, offered, directory):
    """Returns the name and the arguments of a tool that is offered and does what the plan says."""
    kind, rest = call[0], call[1:]
    if kind == "tool":
        return rest[0], rest[1]
    names = {tool["name"] for tool in offered}
    path = f"{directory}/{rest[0]}" if directory and kind != "run" else rest[0]
    shell = {
        "Bash": lambda line: {"command": line, "description": "Run a command"},
        "bash": lambda line: {"command": line, "description": "Run a command"},
        "run_shell_command": lambda line: {"command": line, "description": "Run a command"},
        "exec_command": lambda line: {"cmd": line},
        "shell_command": lambda line: {"command": line},
        "shell": lambda line: {"command": ["bash", "-c", line]},
    }
    files = {
        "read": {
            "Read": lambda: {"file_path": path},
            "read": lambda: {"filePath": path},
            "read_file": lambda: {"file_path": path},
        },
        "write": {
            "Write": lambda: {"file_path": path, "content": rest[1]},
            "write": lambda: {"filePath": path, "content": rest[1]},
            "write_file": lambda: {"file_path": path, "content": rest[1]},
        },
    }
    for name, arguments in files.get(kind, {}).items():
        if name in names:
            return name, arguments()
    if kind == "write" and "apply_patch" in names:
        lines = "".join(f"+{line}\n" for line in rest[1].splitlines())
        return "apply_patch", f"*** Begin Patch\n*** Add File: {rest[0]}\n{lines}*** End Patch\n"
    line = {"read": lambda: f"cat {rest[0]}", "write": lambda: f"cat > {rest[0]} <<'END'\n{rest[1]}END", "run": lambda: rest[0]}
    for name, arguments in shell.items():
        if name in names:
            return name, arguments(line[kind]())
    return None


class Usage:
    def __init__(self, size, results, want, cap):
        self.input = max(size // 4, 1)
        self.cached = self.input // 2 if results else 0
        self.output = want if cap is None else min(want, cap)
        self.is_cut = cap is not None and want > cap

    def fields(self):
        return {"input": self.input - self.cached, "cache_read": self.cached, "cache_write": 0, "output": self.output}


class Messages:
    name = "messages"

    def offered(self, request):
        return request.get("tools") or []

    def results(self, request):
        parts = [p for m in request["messages"] if isinstance(m["content"], list) for p in m["content"]]
        return sum(p.get("type") == "tool_result" for p in parts)

    def cap(self, request):
        return request.get("max_tokens")

    def blocks(self, reply):
        for text in reply.texts:
            yield {"type": "text", "text": text}
        for number, (name, arguments) in enumerate(reply.calls):
            yield {"type": "tool_use", "id": f"toolu_{reply.id}_{number}", "name": name, "input": arguments}

    def message(self, reply, content, stop):
        usage = {
            "input_tokens": reply.usage.input - reply.usage.cached,
            "cache_read_input_tokens": reply.usage.cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": reply.usage.output if stop else 1,
        }
        message = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "model": reply.model}
        return {**message, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}

    def stop(self, reply):
        return "max_tokens" if reply.usage.is_cut else "tool_use" if reply.calls else "end_turn"

    def whole(self, reply):
        return self.message(reply, list(self.blocks(reply)), self.stop(reply))

    def events(self, reply):
        def event(kind, **fields):
            return kind, {"type": kind, **fields}

        yield event("message_start", message=self.message(reply, [], None))
        index = -1
        for index, block in enumerate(self.blocks(reply)):
            if block["type"] == "text":
                yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                for piece in reply.pieces(block["text"]):
                    yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
            else:
                yield event("content_block_start", index=index, content_block={**block, "input": {}})
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        stop = {"stop_reason": self.stop(reply), "stop_sequence": None}
        yield event("message_delta", delta=stop, usage={"output_tokens": reply.usage.output})
        yield event("message_stop")


class Chat:
    name = "chat"

    def offered(self, request):
        return [tool["function"] for tool in request.get("tools") or []]

    def results(self, request):
        return sum(message["role"] == "tool" for message in request["messages"])

    def cap(self, request):
        return request.get("max_completion_tokens") or request.get("max_tokens")

    def calls(self, reply):
        return [
            {"index": n, "id": f"call_{reply.id}_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(reply.calls)
        ]

    def usage(self, reply):
        usage = reply.usage
        details = {"prompt_tokens_details": {"cached_tokens": usage.cached}}
        total = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output}
        return {**total, **details}

    def finish(self, reply):
        return "length" if reply.usage.is_cut else "tool_calls" if reply.calls else "stop"

    def whole(self, reply):
        message = {"role": "assistant", "content": "".join(reply.texts) or None}
        if reply.calls:
            message["tool_calls"] = self.calls(reply)
        choice = {"index": 0, "message": message, "finish_reason": self.finish(reply)}
        head = {"id": f"chatcmpl-{reply.id}", "object": "chat.completion", "created": 1, "model": reply.model}
        return {**head, "choices": [choice], "usage": self.usage(reply)}

    def events(self, reply):
        head = {"id": f"chatcmpl-{reply.id}", "object": "chat.completion.chunk", "created": 1, "model": reply.model}

        def chunk(delta, finish=None):
            return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": ""})
        for text in reply.texts:
            for piece in reply.pieces(text):
                yield chunk({"content": piece})
        if reply.calls:
            yield chunk({"tool_calls": self.calls(reply)})
        yield chunk({}, self.finish(reply))
        if (reply.request.get("stream_options") or {}).get("include_usage"):
            yield None, {**head, "choices": [], "usage": self.usage(reply)}
        yield None, "[DONE]"


class Responses:
    name = "responses"

    def offered(self, request):
        tools = request.get("tools") or []
        return [tool for one in tools for tool in (one.get("tools") or [one]) if tool.get("name")]

    def results(self, request):
        items = request["input"] if isinstance(request["input"], list) else []
        return sum(str(item.get("type", "")).endswith("call_output") for item in items)

    def cap(self, request):
        return request.get("max_output_tokens")

    def output(self, reply):
        items = []
        for n, text in enumerate(reply.texts):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            items.append({"type": "message", "id": f"msg_{reply.id}_{n}", "role": "assistant", "status": "completed", "content": content})
        for n, (name, arguments) in enumerate(reply.calls):
            call = {"id": f"fc_{reply.id}_{n}", "call_id": f"call_{reply.id}_{n}", "name": name, "status": "completed"}
            if isinstance(arguments, str):
                items.append({"type": "custom_tool_call", **call, "input": arguments})
            else:
                items.append({"type": "function_call", **call, "arguments": json.dumps(arguments)})
        return items

    def response(self, reply, status, output):
        response = {"id": f"resp_{reply.id}", "object": "response", "created_at": 1, "model": reply.model, "status": status}
        response["output"] = output
        if status == "in_progress":
            return response
        usage = reply.usage
        response["usage"] = {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        }
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return response

    def status(self, reply):
        return "incomplete" if reply.usage.is_cut else "completed"

    def whole(self, reply):
        return self.response(reply, self.status(reply), self.output(reply))

    def events(self, reply):
        number = 0

        def event(kind, **fields):
            nonlocal number
            number += 1
            return kind, {"type": kind, "sequence_number": number - 1, **fields}

        yield event("response.created", response=self.response(reply, "in_progress", []))
        output = self.output(reply)
        for index, item in enumerate(output):
            if item["type"] == "message":
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                yield event("response.output_item.added", output_index=index, item={**item, "status": "in_progress", "content": []})
                for piece in reply.pieces(item["content"][0]["text"]):
                    yield event("response.output_text.delta", **place, delta=piece)
            else:
                yield event("response.output_item.added", output_index=index, item=item)
            yield event("response.output_item.done", output_index=index, item=item)
        status = self.status(reply)
        yield event(f"response.{status}", response=self.response(reply, status, output))


class Gemini:
    name = "gemini"

    def offered(self, request):
        return [function for tool in request.get("tools") or [] for function in tool.get("functionDeclarations") or []]

    def results(self, request):
        parts = [part for content in request["contents"] for part in content.get("parts") or []]
        return sum("functionResponse" in part for part in parts)

    def cap(self, request):
        return (request.get("generationConfig") or {}).get("maxOutputTokens")

    def chunk(self, reply, parts, finish=None):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        usage = {"promptTokenCount": reply.usage.input, "cachedContentTokenCount": reply.usage.cached}
        if finish:
            candidate["finishReason"] = finish
            thoughts = reply.usage.output // 2
            usage |= {"candidatesTokenCount": reply.usage.output - thoughts, "thoughtsTokenCount": thoughts}
            usage["totalTokenCount"] = reply.usage.input + reply.usage.output
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": reply.model, "responseId": reply.id}

    def calls(self, reply):
        return [{"functionCall": {"name": name, "args": arguments}} for name, arguments in reply.calls]

    def finish(self, reply):
        return "MAX_TOKENS" if reply.usage.is_cut else "STOP"

    def whole(self, reply):
        parts = [{"text": text} for text in reply.texts] + self.calls(reply)
        return self.chunk(reply, parts, self.finish(reply))

    def events(self, reply):
        for text in reply.texts:
            for piece in reply.pieces(text):
                yield None, self.chunk(reply, [{"text": piece}])
        yield None, self.chunk(reply, self.calls(reply) or [{"text": ""}], self.finish(reply))


WIRES = {"/messages": Messages(), "/chat/completions": Chat(), "/responses": Responses()}
GEMINI = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)$")


class Reply:
    """What the model says to one request."""

    def __init__(self, wire, request, size, model, number):
        self.request, self.model, self.id = request, model, str(number)
        self.plan, self.settings, self.results, step = choose(request, wire)
        self.pause, self.calls, self.texts = 0, [], []
        if isinstance(step, dict):
            self.pause = 0.1
            self.texts = ["word " * step["slow"]]
        elif isinstance(step, str):
            self.texts = [step]
        else:
            found = DIRECTORY.findall("\n".join(texts(request)))
            spelled = [spell(call, wire.offered(request), found[-1] if found else None) for call in step]
            self.calls = [call for call in spelled if call]
            if not self.calls:
                self.texts = [TITLE]
        want = 20 + len(json.dumps([self.texts, self.calls])) // 4
        self.usage = Usage(size, self.results, want, wire.cap(request))
        if self.usage.is_cut:
            self.calls, self.texts = [], ["cut"]

    def pieces(self, text):
        if not self.pause:
            yield text
            return
        for word in text.split(" "):
            time.sleep(self.pause)
            yield word + " "


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Chunks are small and each is to be seen at once.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def body(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_HEAD(self):
        self.body(200, {})

    def do_GET(self):
        log.write(event="listed", path=self.path)
        self.body(200, {"object": "list", "data": [], "models": []})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
        found = GEMINI.search(path)
        if found:
            wire = Gemini()
        if not wire:
            log.write(event="unknown", path=self.path)
            return self.body(404, {"error": {"message": f"no such path {path}"}})
        request = json.loads(raw)
        model = found[1] if found else request.get("model")
        is_stream = found[2].startswith("stream") if found else bool(request.get("stream"))
        number = log.number()
        reply = Reply(wire, request, len(raw), model, number)
        key = self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or self.headers.get("authorization", "")
        about = {"number": number, "wire": wire.name, "model": model, "stream": is_stream, "plan": reply.plan}
        about |= {"results": reply.results, "cap": wire.cap(request), "bytes": len(raw), "key": key.removeprefix("Bearer ")}
        about |= {"calls": [name for name, _ in reply.calls]}
        if keep:
            with open(f"{keep}/{number:04}.json", "wb") as file:
                file.write(raw)
            about["headers"] = dict(self.headers)
        about["offered"] = [tool["name"] for tool in wire.offered(request)] if keep else len(wire.offered(request))
        log.write(event="asked", **about)
        client = "present"
        try:
            time.sleep(reply.settings.get("delay", 0) / 1000)
            if is_stream:
                self.stream(wire, reply)
            else:
                self.body(200, wire.whole(reply))
        except OSError:
            client = "gone"
            self.close_connection = True
        log.write(event="served", **about, client=client, usage=reply.usage.fields())

    def stream(self, wire, reply):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for name, data in wire.events(reply):
            text = (f"event: {name}\n" if name else "") + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
            part = text.encode()
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    log = Log(sys.argv[1])
    if len(sys.argv) > 2:
        with open(sys.argv[2]) as file:
            PLANS |= json.load(file)
    keep = sys.argv[3] if len(sys.argv) > 3 else None
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
