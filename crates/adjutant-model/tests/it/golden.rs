//! One recorded stream per API, written from the documentation: text, thinking, parallel calls
//! with arguments in fragments, letters outside ASCII, and a bill.

use adjutant_core::{AttemptResult, ModelReply};
use adjutant_model::wire::{Wire, WireCodec};
use adjutant_model::{ModelSettings, TurnProgress};

pub(crate) const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"test-model","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":40,"cache_read_input_tokens":300,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Two files."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2lnbmVk"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Größe → "}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\ud83d\ude80 \"now\""}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"Read","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"path\": \"sr"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"c/ä.rs\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"Glob","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}

event: message_stop
data: {"type":"message_stop"}

"#;

pub(crate) const CHAT: &str = r#": a comment

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"test-model","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Größe → "},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"\ud83d\ude80 \"now\""},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"Read","arguments":""}}]},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": \"sr"}}]},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"Glob","arguments":"{}"}}]},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"c/ä.rs\"}"}}]},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":365,"completion_tokens":89,"total_tokens":454,"prompt_tokens_details":{"cached_tokens":300,"cache_write_tokens":40,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20}}}

data: [DONE]

"#;

pub(crate) const RESPONSES: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":2,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"c2lnbmVk"}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":3,"output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}

event: response.content_part.added
data: {"type":"response.content_part.added","sequence_number":4,"item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":5,"item_id":"msg_1","output_index":1,"content_index":0,"delta":"Größe → "}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":6,"item_id":"msg_1","output_index":1,"content_index":0,"delta":"\ud83d\ude80 \"now\""}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":7,"item_id":"msg_1","output_index":1,"content_index":0,"text":"Größe → 🚀 \"now\""}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":8,"output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Größe → 🚀 \"now\"","annotations":[]}]}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":9,"output_index":2,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"call_1","name":"Read","arguments":""}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","sequence_number":10,"item_id":"fc_1","output_index":2,"delta":"{\"path\": \"sr"}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","sequence_number":11,"item_id":"fc_1","output_index":2,"delta":"c/ä.rs\"}"}

event: response.function_call_arguments.done
data: {"type":"response.function_call_arguments.done","sequence_number":12,"item_id":"fc_1","output_index":2,"arguments":"{\"path\": \"src/ä.rs\"}"}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":13,"output_index":2,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"Read","arguments":"{\"path\": \"src/ä.rs\"}"}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":14,"output_index":3,"item":{"id":"fc_2","type":"function_call","status":"in_progress","call_id":"call_2","name":"Glob","arguments":""}}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":15,"output_index":3,"item":{"id":"fc_2","type":"function_call","status":"completed","call_id":"call_2","name":"Glob","arguments":"{}"}}

event: response.completed
data: {"type":"response.completed","sequence_number":16,"response":{"id":"resp_1","object":"response","status":"completed","error":null,"incomplete_details":null,"output":[],"usage":{"input_tokens":365,"input_tokens_details":{"cached_tokens":300,"cache_write_tokens":40},"output_tokens":89,"output_tokens_details":{"reasoning_tokens":20},"total_tokens":454}}}

"#;

pub(crate) const GEMINI: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Two files.\",\"thought\":true}],\"role\":\"model\"},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":365,\"totalTokenCount\":365}}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Größe \"}],\"role\":\"model\"},\"index\":0}]}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"→ 🚀 \\\"now\\\"\"}],\"role\":\"model\"},\"index\":0}]}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"Read\",\"args\":{\"path\":\"src/ä.rs\"}},\"thoughtSignature\":\"c2lnbmVk\"},{\"functionCall\":{\"name\":\"Glob\",\"args\":{}}}],\"role\":\"model\"},\"index\":0}]}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}],\"role\":\"model\"},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":365,\"cachedContentTokenCount\":300,\"candidatesTokenCount\":69,\"thoughtsTokenCount\":20,\"totalTokenCount\":454},\"modelVersion\":\"test-model\",\"responseId\":\"r1\"}\r\n\r\n";

/// Returns each wire with its recorded stream.
pub(crate) fn recorded() -> [(Wire, &'static str); 4] {
    [
        (Wire::Anthropic, ANTHROPIC),
        (Wire::Chat, CHAT),
        (Wire::Responses, RESPONSES),
        (Wire::Gemini, GEMINI),
    ]
}

pub(crate) fn codec(wire: Wire) -> WireCodec {
    WireCodec {
        wire,
        model: "test-model".to_owned(),
        official: false,
        reasoning: true,
        settings: ModelSettings::default(),
    }
}

/// Reads a stream in the given pieces and returns the reply and the text that was reported as progress.
pub(crate) fn read_heard<'a>(
    wire: Wire,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (AttemptResult, String) {
    let mut reader = codec(wire).reader(3);
    let mut heard = String::new();
    let mut progress = |progress: TurnProgress<'_>| match progress {
        TurnProgress::Text(text) => heard.push_str(text),
        TurnProgress::Bytes(bytes) => assert!(bytes > 0),
        TurnProgress::Waiting { .. } => panic!("nobody asked for a pause"),
    };
    for piece in pieces {
        match reader.push_bytes(piece, &mut progress) {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => return (Err(error), heard),
        }
    }
    (reader.finish(), heard)
}

pub(crate) fn read(wire: Wire, stream: &str) -> AttemptResult {
    read_heard(wire, [stream.as_bytes()]).0
}

pub(crate) fn reply(wire: Wire, stream: &str) -> ModelReply {
    read(wire, stream).unwrap_or_else(|error| panic!("{wire}: {error}"))
}
