"""Drives the agents through `adjutant` and compares it with the provider's log; called by `run`.

Prints one line per check, `ok` or `FAILED`, and a table at the end. Exits with 1 if a check failed.
"""

import argparse
import ctypes
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = {
    "claude": "anthropic/claude-sonnet-4-5",
    "codex": "openai/gpt-5",
    "opencode": "local/m1",
    "gemini": "gemini/gemini-2.5-pro",
}
WIRES = {"claude": "messages", "codex": "responses", "opencode": "chat", "gemini": "gemini"}
# How the process of each agent is recognised.
PROGRAMS = {"claude": "claude-agent-acp", "codex": "codex-acp", "opencode": "opencode", "gemini": "gemini"}
KEY = "the-real-key"
CONFIG = """
[providers.local]
base_url = "{url}/v1"
wire = "chat"
key_env = "LOCAL_KEY"

[models."local/m1"]
window = 200000
max_output = 8000
price = {{ input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }}
"""
CAPS = 10
# How long an agent may take for its whole task. opencode needs 15 s to start on a slow machine.
TASK = 180


class CheckFailed(Exception):
    pass


def require(condition, why):
    if not condition:
        raise CheckFailed(why)


def processes_below(root):
    """Returns pid and command line of every process below `root`, which must be a subreaper."""
    parents, lines = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        # Zombies of this process are collected by the caller.
        if fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])
            lines[int(entry.name)] = line
    found, todo = {}, [root]
    while todo:
        parent = todo.pop()
        below = [pid for pid, its in parents.items() if its == parent]
        found.update({pid: lines[pid] for pid in below})
        todo.extend(below)
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class Machine:
    """What must be as before after each check: processes, mounts, sockets."""

    def __init__(self, place):
        self.place = place
        self.expected = set()
        self.mounts = self.mounted()
        self.sockets = set()

    def mounted(self):
        """Returns the mounts at or of something below our folder; others of the machine come and go."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return {line.split()[4] for line in lines if str(self.place) in line}

    def open_sockets(self):
        """Returns sockets with a path below our folder and listening TCP ports."""
        found = set()
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) > 7 and str(self.place) in fields[7]:
                found.add(fields[7])
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.add(f"tcp {fields[1]}")
        return found

    def socket_files(self):
        found = set()
        for folder, _, names in os.walk(self.place, onerror=lambda _: None):
            if "/node_modules" in folder or "/.venv" in folder:
                continue
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if stat.S_ISSOCK(os.lstat(path).st_mode):
                        found.add(path)
                except OSError:
                    pass
        return found

    def remember(self):
        self.expected = set(processes_below(os.getpid()))
        self.mounts = self.mounted()
        self.sockets = self.open_sockets() | self.socket_files()

    def require_clean(self, are_files_allowed=False):
        """Waits until nothing is left. A process that was killed cannot remove its socket files itself."""
        until = time.time() + 5
        while True:
            reap()
            left = {pid: line for pid, line in processes_below(os.getpid()).items() if pid not in self.expected}
            sockets = self.open_sockets() | (set() if are_files_allowed else self.socket_files())
            sockets -= self.sockets
            mounts = self.mounted() - self.mounts
            if not left and not sockets and not mounts:
                return
            if time.time() > until:
                break
            time.sleep(0.05)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.2)
        reap()
        # The next check is about what it leaves itself.
        self.sockets |= sockets
        self.mounts |= mounts
        shown = [f"process {pid} {line[:100]}" for pid, line in left.items()]
        shown += [f"socket {name}" for name in sockets] + [f"mount {name}" for name in mounts]
        raise CheckFailed("left behind: " + "; ".join(shown))


class Provider:
    def __init__(self, place):
        self.log = place / "provider.jsonl"
        plans = place / "plans.json"
        command = [sys.executable, "-B", str(HERE / "provider.py"), str(self.log), str(plans)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        require(self.url, "the provider does not start")

    def lines(self, since=0):
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines[since:]]

    def count(self):
        return len(self.lines())


class Suite:
    def __init__(self, options):
        self.options = options
        self.place = Path(options.place)
        self.adjutant = options.adjutant
        self.random = random.Random(options.seed)
        self.results = {}
        self.number = 0
        self.machine = Machine(self.place)
        self.prepare_plans()
        self.provider = Provider(self.place)
        self.home = self.place / "home"
        config = self.home / ".config/adjutant/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(CONFIG.format(url=self.provider.url))
        paths = [f"{options.packages}/{agent}/node_modules/.bin" for agent in ["node", *options.agents]]
        url = self.provider.url
        self.environment = {
            "PATH": ":".join([*paths, "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": KEY,
            "GEMINI_BASE_URL": url,
            "GEMINI_API_KEY": KEY,
            "LOCAL_KEY": KEY,
        }
        listed = json.loads(self.run_adjutant("models", "--json").stdout)["models"]
        self.prices = {model["name"]: model["price"] for model in listed if model["price"]}
        self.prices["local/m1"] = {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75}

    # The work that the model does: in the project from PyPI, or in a small repository.
    def prepare_plans(self):
        options = self.options
        if options.project:
            fixed = Path(options.fixed).read_text()
            self.file, self.verify = options.file, options.verify
            steps = [[["read", "README.md"], ["read", self.file]], [["write", self.file, fixed]]]
            steps += [[["run", f"{self.verify} | tail -3"]], "The work is done."]
        else:
            self.file, self.verify = "double.py", "python3 -m unittest -q"
            fixed = "def double(number):\n    return 2 * number\n"
            steps = [[["read", "README.md"], ["read", self.file]], [["write", self.file, fixed]]]
            steps += [[["run", self.verify]], "The work is done."]
        self.fixed = fixed
        (self.place / "plans.json").write_text(json.dumps({"fix": steps}))

    def fresh_project(self):
        """Returns a repository whose test fails."""
        if self.options.project:
            project = Path(self.options.project)
            subprocess.run(["git", "checkout", "-q", "."], cwd=project, check=True)
            subprocess.run(["git", "clean", "-qfd"], cwd=project, check=True)
            return project
        self.number += 1
        project = self.place / f"project-{self.number}"
        project.mkdir()
        (project / "README.md").write_text("# Doubles numbers\n")
        (project / "double.py").write_text("def double(number):\n    return 3 * number\n")
        (project / "test_double.py").write_text(
            "import unittest\nfrom double import double\n\n\n"
            "class Test(unittest.TestCase):\n    def test_double(self):\n        self.assertEqual(double(2), 4)\n"
        )
        (project / ".gitignore").write_text("__pycache__\n")
        commit = "git init -q . && git add -A && git -c user.name=Test -c user.email=test@localhost commit -qm start"
        subprocess.run(commit, shell=True, cwd=project, check=True)
        return project

    def fresh_state(self):
        self.number += 1
        state = self.place / f"state-{self.number}"
        state.mkdir()
        return state

    def command(self, *words, state=None):
        return [self.adjutant, *([] if state is None else ["--home", str(state)]), *map(str, words)]

    def run_adjutant(self, *words, state=None, cwd=None, timeout=60):
        command = self.command(*words, state=state)
        cwd = cwd or self.place
        return subprocess.run(
            command, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )

    def delegate(self, agent, plan, budget, state, project, verify=False):
        """Starts a delegation; returns the process, whose output is in files of the state directory."""
        words = ["delegate", "--write", "--yes", "--json", "--worker", agent, "--model", MODELS[agent]]
        words += ["--budget-usd", f"{budget:.4f}", "-t", f"fix=[plan:{plan}] Make the failing test pass."]
        if verify:
            words += ["--verify", self.verify]
        if self.options.project:
            words += ["--include-ignored", ".venv"]
        if self.options.grant:
            words += ["--grant", self.options.grant]
        return self.start(words, state, project)

    def start(self, words, state, project):
        out, err = open(state / "out", "w"), open(state / "err", "a")
        return subprocess.Popen(
            self.command(*words, state=state), cwd=project, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )

    def result(self, state):
        text = (state / "out").read_text()
        talk = (state / "err").read_text()[-600:]
        require(text.strip(), f"no result; it said: {talk}")
        results = json.loads(text)["results"]
        require(len(results) == 1, f"{len(results)} results")
        return results[0]

    # What the provider served since a line of its log.
    def served(self, since):
        lines = self.provider.lines(since)
        asked = [line["number"] for line in lines if line["event"] == "asked"]
        served = [line for line in lines if line["event"] == "served"]
        done = {line["number"] for line in served}
        return served, [number for number in asked if number not in done]

    def usage(self, served):
        kinds = ["input", "output", "cache_read", "cache_write"]
        usage = {kind: sum(line["usage"][kind] for line in served) for kind in kinds}
        # On the bill, cached tokens are part of the input.
        usage["input"] += usage["cache_read"] + usage["cache_write"]
        return usage

    def cost(self, agent, served):
        provider = MODELS[agent].split("/")[0]
        total = 0.0
        for line in served:
            price = self.prices[f"{provider}/{line['model']}"]
            total += sum(line["usage"][kind] * price[kind] for kind in line["usage"]) / 1e6
        return total

    def bill(self, state, project):
        ran = self.run_adjutant("cost", "--json", state=state, cwd=project)
        require(ran.returncode == 0, f"cost: {ran.stderr.strip()}")
        return json.loads(ran.stdout)["total"]

    def events(self, state, project, kind):
        log = self.run_adjutant("log", "--json", state=state, cwd=project).stdout
        events = [json.loads(line)["event"] for line in log.splitlines() if line.startswith("{")]
        return [event for event in events if event["type"] == kind]

    def require_cap_held(self, agent, cap, since, state, project, figures):
        """Compares the provider's log with a cap, and with the refusals. Returns the calls that were served."""
        served, _ = self.served(since)
        overruns = self.events(state, project, "overran")
        spent, over = self.cost(agent, served), sum(event["amount"].get("usd") or 0 for event in overruns)
        refused = self.events(state, project, "worker_call_refused")
        figures.append(f"{len(served)} calls for ${spent:.4f}, {len(refused)} refused")
        require(spent <= cap + over + 1e-9, f"the provider served ${spent:.6f}, overruns ${over:.6f}")
        require(refused or not served, "the endless task ended without a refused call")
        return served

    def require_served_as_meant(self, agent, served):
        for line in served:
            require(line["wire"] == WIRES[agent], f"a call on the wire {line['wire']}")
            require(line["key"] == KEY, f"the provider got the key `{line['key']}`")
            require(f"{MODELS[agent].split('/')[0]}/{line['model']}" == MODELS[agent], f"a call of model {line['model']}")

    def wait_for(self, since, wanted, process, patience=90):
        """Waits for a line of the provider's log."""
        until = time.time() + patience
        while time.time() < until:
            if any(wanted(line) for line in self.provider.lines(since)):
                return
            if process.poll() is not None:
                raise CheckFailed("it ended before the model was asked")
            time.sleep(0.02)
        raise CheckFailed("the model was not asked in time")

    @contextmanager
    def check(self, agent, what):
        began = time.time()
        failure = None
        figures = []
        try:
            yield figures
            self.machine.require_clean()
        except (CheckFailed, subprocess.TimeoutExpired, ValueError, KeyError, OSError) as error:
            failure = f"{error}" if isinstance(error, CheckFailed) else f"{type(error).__name__}: {error}"
            try:
                self.machine.require_clean()
            except CheckFailed as left:
                failure += f"; {left}"
        group = what.split(":")[0]
        passed, failed = self.results.get((agent, group), (0, 0))
        self.results[agent, group] = (passed + (failure is None), failed + (failure is not None))
        word = "ok" if failure is None else "FAILED"
        shown = "; ".join([f"{time.time() - began:.1f} s", *figures])
        print(f"{word:6} {agent:9} {what} ({shown}){'' if failure is None else ': ' + failure}", flush=True)

    def check_complete(self, agent):
        with self.check(agent, "complete: fixes a test with a write and a command"):
            state, project, since = self.fresh_state(), self.fresh_project(), self.provider.count()
            process = self.delegate(agent, "fix", 5.0, state, project, verify=True)
            process.wait(TASK)
            result = self.result(state)
            require(result["outcome"] == "completed", f"outcome {result['outcome']}: {result.get('reason')}")
            require(result["verification"] == "passed", f"verification {result['verification']}")
            kept = [file["path"] for file in result["kept"].get("files", [])]
            require(kept == [self.file], f"changed files {kept}")
            reference = result["kept"]["reference"]
            shown = subprocess.run(["git", "show", f"{reference}:{self.file}"], cwd=project, capture_output=True, text=True)
            require(shown.stdout == self.fixed, "the result does not have the file as written")
            diff = self.run_adjutant("diff", state=state, cwd=project).stdout
            require(self.file in diff, "the diff does not name the file")
            served, unfinished = self.served(since)
            require(not unfinished, "a call was not finished")
            self.require_served_as_meant(agent, served)
            require(max(line["results"] for line in served) == 4, "the model did not get four tool results")
            bill = self.bill(state, project)
            require(bill["usage"] == self.usage(served), f"bill {bill['usage']}, log {self.usage(served)}")
            require(bill["calls"] == len(served), f"bill {bill['calls']} calls, log {len(served)}")
            require(abs(bill["cost_usd"] - self.cost(agent, served)) < 1e-9, f"bill ${bill['cost_usd']}, log ${self.cost(agent, served)}")
            require(bill["estimated_tokens"] == 0, f"{bill['estimated_tokens']} tokens are estimated")

    def check_caps(self, agent):
        # The first calls of the agents cost some cents; from a cap that admits none to a dozen calls.
        for number in range(CAPS):
            cap = round(self.random.uniform(0.01, 0.8), 4)
            with self.check(agent, f"cap: holds ${cap}") as figures:
                state, project, since = self.fresh_state(), self.fresh_project(), self.provider.count()
                process = self.delegate(agent, "endless", cap, state, project)
                process.wait(TASK)
                served = self.require_cap_held(agent, cap, since, state, project, figures)
                text = (state / "out").read_text()
                if text.strip():
                    outcome = self.result(state)["outcome"]
                    require(outcome != "completed", "the outcome is completed")
                else:
                    # A cap below one call is refused before the start.
                    require(process.returncode == 4 and not served, f"no result, exit code {process.returncode}")
                    continue
                bill = self.bill(state, project)
                require(bill["usage"] == self.usage(served), f"bill {bill['usage']}, log {self.usage(served)}")

    def check_cancel(self, agent):
        for number in range(self.options.tries):
            plan = ["hang", "slow"][number % 2]
            with self.check(agent, f"cancel: {plan} {number + 1}") as figures:
                state, project, since = self.fresh_state(), self.fresh_project(), self.provider.count()
                process = self.delegate(agent, plan, 5.0, state, project)
                event = {"hang": "served", "slow": "asked"}[plan]
                # The second step of both plans is the long one.
                self.wait_for(since, lambda line: line["event"] == event and line["results"] == 1, process)
                time.sleep(self.random.uniform(0.1, 1.0))
                began = time.time()
                ran = self.run_adjutant("cancel", state=state, cwd=project)
                require(ran.returncode == 0, f"cancel: {ran.stderr.strip()}")
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise CheckFailed("not over after 20 s") from None
                took = time.time() - began
                figures.append(f"over after {took:.2f} s")
                require(took <= 2.0, f"took {took:.2f} s")
                require(self.result(state)["outcome"] == "cancelled", f"outcome {self.result(state)['outcome']}")

    def agent_processes(self, agent):
        below = processes_below(os.getpid())
        return [pid for pid, line in below.items() if pid not in self.machine.expected and PROGRAMS[agent] in line and "delegate" not in line]

    def check_kill(self, agent):
        for whom in ["adjutant", "agent", "both"]:
            with self.check(agent, f"kill: {whom}, then resume"):
                state, project, since = self.fresh_state(), self.fresh_project(), self.provider.count()
                process = self.delegate(agent, "fix delay=400", 5.0, state, project, verify=True)
                results = self.random.choice([0, 2, 3])
                self.wait_for(since, lambda line: line["event"] == "asked" and line["results"] == results and line["calls"], process)
                time.sleep(self.random.uniform(0.0, 0.6))
                targets = []
                if whom != "adjutant":
                    targets += self.agent_processes(agent)
                    require(targets, "the agent's process was not found")
                if whom != "agent":
                    targets.append(process.pid)
                for pid in targets:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                process.wait(TASK)
                self.machine.require_clean(are_files_allowed=True)
                outcome = None
                for attempt in range(3):
                    text = (state / "out").read_text() if attempt or whom == "agent" else ""
                    outcome = self.result(state)["outcome"] if text.strip() else None
                    if outcome == "completed":
                        break
                    resumed = self.start(["resume", "--yes", "--json"], state, project)
                    resumed.wait(TASK)
                require(outcome == "completed" or self.result(state)["outcome"] == "completed", f"outcome {outcome} after 3 attempts")
                reference = self.result(state)["kept"]["reference"]
                shown = subprocess.run(["git", "show", f"{reference}:{self.file}"], cwd=project, capture_output=True, text=True)
                require(shown.stdout == self.fixed, "the result does not have the file as written")
                time.sleep(0.5)
                served, _ = self.served(since)
                bill, spent = self.bill(state, project), self.cost(agent, served)
                total = bill["cost_usd"]
                require(total >= spent - 1e-9, f"bill ${total}, the provider served ${spent}")
                if not bill["estimated_tokens"]:
                    require(bill["usage"] == self.usage(served), f"bill {bill['usage']}, log {self.usage(served)}")

    def headless(self, agent, plan):
        """Returns the command line of the agent without a person, and the variables it needs besides the gateway's."""
        bin_folder = f"{self.options.packages}/{agent}/node_modules/.bin"
        text = f"[plan:{plan}] Make the failing test pass."
        model = MODELS[agent].split("/")[1]
        home = self.place / f"home-{agent}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        variables = {"HOME": str(home)}
        if agent == "claude":
            found = list(Path(self.options.packages, agent).glob("node_modules/@anthropic-ai/claude-agent-sdk-*/claude"))
            require(found, "the package has no program for this machine")
            variables |= {"IS_SANDBOX": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}
            return [str(found[0]), "-p", text, "--model", model, "--permission-mode", "bypassPermissions"], variables
        if agent == "codex":
            (home / ".codex").mkdir()
            settings = ["model_provider=gateway", "model_providers.gateway.name=gateway", "web_search=disabled", "features.plugins=false"]
            settings += ["model_providers.gateway.wire_api=responses"]
            settings += ["model_providers.gateway.request_max_retries=0", "model_providers.gateway.stream_max_retries=0"]
            script = 'exec "$0" exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m "$1" '
            script += "".join(f"-c {setting} " for setting in settings)
            script += '-c model_providers.gateway.base_url="$OPENAI_BASE_URL" "$2"'
            return ["sh", "-c", script, f"{bin_folder}/codex", model, text], variables
        if agent == "opencode":
            provider = {"npm": "@ai-sdk/openai-compatible", "name": "gateway"}
            provider["options"] = {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "placeholder"}
            provider["models"] = {model: {"name": model, "tool_call": True, "limit": {"context": 200000, "output": 8000}}}
            config = {"autoupdate": False, "share": "disabled", "snapshot": False, "lsp": False, "formatter": False}
            config |= {"enabled_providers": ["gateway"], "model": f"gateway/{model}", "small_model": f"gateway/{model}"}
            config |= {"permission": {"edit": "allow", "bash": "allow"}, "provider": {"gateway": provider}}
            variables |= {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
            variables |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "true", "OPENCODE_PURE": "1"}
            return [f"{bin_folder}/opencode", "run", text], variables
        settings = {"general": {"maxAttempts": 1}, "security": {"auth": {"selectedType": "gemini-api-key"}}}
        settings |= {"model": {"disableLoopDetection": True}, "tools": {"exclude": ["google_web_search", "web_fetch"]}}
        (home / ".gemini").mkdir()
        (home / ".gemini/settings.json").write_text(json.dumps(settings))
        variables["GEMINI_CLI_NO_RELAUNCH"] = "true"
        return [f"{bin_folder}/gemini", "--skip-trust", "--yolo", "-m", model, "-p", text], variables

    def run_gateway(self, agent, plan, budget, state, project):
        command, variables = self.headless(agent, plan)
        # The home of adjutant itself has its configuration; `env` gives the agent another one.
        inside = ["env", *(f"{name}={value}" for name, value in variables.items()), *command]
        words = ["gateway", "--budget-usd", f"{budget:.4f}", "--model", MODELS[agent], "--", *inside]
        process = self.start(words, state, project)
        try:
            return process.wait(TASK)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(20)
            raise CheckFailed(f"the program does not end within {TASK} s") from None

    def check_gateway(self, agent):
        with self.check(agent, "gateway: completes a task and prints the bill"):
            state, project, since = self.fresh_state(), self.fresh_project(), self.provider.count()
            code = self.run_gateway(agent, "fix", 5.0, state, project)
            talk = (state / "err").read_text()
            require(code == 0, f"exit code {code}: {talk[-400:]}")
            require((project / self.file).read_text() == self.fixed, "the file was not written")
            served, _ = self.served(since)
            self.require_served_as_meant(agent, served)
            require(MODELS[agent] in talk and "$" in talk, f"no bill: {talk[-300:]}")
            shown = self.cost(agent, served)
            amounts = [float(amount) for amount in re.findall(r"\$([0-9]+\.[0-9]+)", talk)]
            require(any(abs(amount - shown) < 0.00051 for amount in amounts), f"the bill says {amounts}, the log ${shown:.6f}")
        for number in range(3):
            cap = round(self.random.uniform(0.01, 0.8), 4)
            with self.check(agent, f"gateway: holds ${cap}") as figures:
                state, project, since = self.fresh_state(), self.fresh_project(), self.provider.count()
                self.run_gateway(agent, "endless", cap, state, project)
                served = self.require_cap_held(agent, cap, since, state, project, figures)
                spent = self.cost(agent, served)
                require(spent <= cap + 1e-9, f"the provider served ${spent:.6f}")

    def check_listed(self):
        ran = self.run_adjutant("workers", "--json")
        print(self.run_adjutant("workers").stdout.rstrip() or f"FAILED: adjutant workers: {ran.stderr.strip()}", flush=True)

    def run(self):
        self.check_listed()
        self.machine.remember()
        groups = {"complete": self.check_complete, "cap": self.check_caps, "cancel": self.check_cancel}
        groups |= {"kill": self.check_kill, "gateway": self.check_gateway}
        wanted = self.options.only.split(",") if self.options.only else list(groups)
        for agent in self.options.agents:
            for group in wanted:
                groups[group](agent)
        print(f"\n{'':10}" + "".join(f"{group:>14}" for group in wanted))
        for agent in self.options.agents:
            cells = []
            for group in wanted:
                passed, failed = self.results.get((agent, group), (0, 0))
                cells.append(f"{passed} ok" if not failed else f"{failed} FAILED")
            print(f"{agent:10}" + "".join(f"{cell:>14}" for cell in cells))
        failed = sum(failed for _, failed in self.results.values())
        passed = sum(passed for passed, _ in self.results.values())
        print(f"{passed + failed} checks, {failed} failed")
        return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ["--adjutant", "--packages", "--place"]:
        parser.add_argument(name, required=True)
    for name in ["--project", "--file", "--fixed", "--verify", "--grant", "--only"]:
        parser.add_argument(name)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("agents", nargs="+")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    # A process whose parent has ended becomes a child of this one, whatever its session or group.
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    suite = Suite(options)
    try:
        return suite.run()
    finally:
        suite.provider.process.kill()


if __name__ == "__main__":
    sys.exit(main())
