//! How a model writes thoughts and calls of tools: as configured, or by what its chat template writes. Not here: reading them
//! (`http/chat_parts`).

use crate::config::{ModelConfig, ReasoningParser, ToolParser};
use crate::http::chat_parts::{AnswerForm, CallFormat, Thinking};
use ropeteam_models::text::ChatTemplate;

/// The form of a model's answers.
pub fn form(config: &ModelConfig, template: Option<&ChatTemplate>) -> AnswerForm {
    AnswerForm {
        calls: calls(config.tool_parser, template),
        thinking: thinking(config.reasoning_parser, template),
    }
}

fn calls(parser: ToolParser, template: Option<&ChatTemplate>) -> Option<CallFormat> {
    match parser {
        ToolParser::Auto => Some(template.map_or(CallFormat::Json, CallFormat::of)),
        ToolParser::Off => None,
        ToolParser::Hermes => Some(CallFormat::Hermes),
        ToolParser::Llama3 => Some(CallFormat::Llama3),
        ToolParser::Mistral => Some(CallFormat::Mistral),
        ToolParser::Glm4 => Some(CallFormat::Glm4),
        ToolParser::Glm45 => Some(CallFormat::Glm45),
        ToolParser::Json => Some(CallFormat::Json),
    }
}

fn thinking(parser: ReasoningParser, template: Option<&ChatTemplate>) -> Option<Thinking> {
    match parser {
        ReasoningParser::Auto => template.and_then(Thinking::of),
        ReasoningParser::Off => None,
        ReasoningParser::Qwen3 | ReasoningParser::Glm => Some(Thinking::FromTag),
        ReasoningParser::Deepseek => Some(Thinking::AtOnce),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_models::text::SpecialTokens;

    fn found(source: &str) -> (Option<CallFormat>, Option<Thinking>) {
        let template = ChatTemplate::from_source(source, "test", &SpecialTokens::default());
        let template = template.expect("a template");
        (
            calls(ToolParser::Auto, Some(&template)),
            thinking(ReasoningParser::Auto, Some(&template)),
        )
    }

    #[test]
    fn the_template_tells_how_a_model_writes() {
        for (source, format) in [
            ("<tool_call>", CallFormat::Hermes),
            ("<tool_call>{name}<arg_key>", CallFormat::Glm45),
            ("[TOOL_CALLS]", CallFormat::Mistral),
            ("{{ '<|python_tag|>' }}", CallFormat::Llama3),
            ("Environment: ipython", CallFormat::Llama3),
            ("<|observation|>", CallFormat::Glm4),
            ("{{ messages[0].content }}", CallFormat::Json),
        ] {
            assert_eq!(found(source), (Some(format), None), "{source}");
        }
        assert_eq!(
            found("{{ content.split('</think>') }}").1,
            Some(Thinking::FromTag)
        );
    }

    #[test]
    fn what_is_configured_counts() {
        assert_eq!(calls(ToolParser::Off, None), None);
        assert_eq!(calls(ToolParser::Mistral, None), Some(CallFormat::Mistral));
        assert_eq!(
            thinking(ReasoningParser::Deepseek, None),
            Some(Thinking::AtOnce)
        );
        assert_eq!(thinking(ReasoningParser::Auto, None), None);
    }
}
