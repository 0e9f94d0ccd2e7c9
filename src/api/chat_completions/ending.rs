//! How a choice ended.

use crate::{
    generation::Finish,
    request_fields::tools::ToolChoice,
    wire::answer::output::{FinishReason, StopReason, finish_fields},
};

/// Returns how a choice ended, also in streams. If it makes calls and the model ended it, the calls are the reason. A
/// choice that was cut off says so even if it makes calls: more may have been meant, and trainers drop what was cut off
/// by its reason. As in vLLM, a call of a named function is no reason.
pub(in crate::api) fn ending(finish: &Finish, called: bool, choice: &ToolChoice) -> (FinishReason, Option<StopReason>) {
    let (reason, stop_reason) = finish_fields(finish);
    let calls = called
        && match choice {
            ToolChoice::None | ToolChoice::Named(_) => false,
            ToolChoice::Auto | ToolChoice::Required => reason == FinishReason::Stop,
        };
    (if calls { FinishReason::ToolCalls } else { reason }, stop_reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_choice_ends_with_depends_on_who_chose_to_call() {
        let named = ToolChoice::Named("f".to_owned());
        for (choice, called, finish, reason) in [
            (&ToolChoice::None, false, Finish::Eos, FinishReason::Stop),
            (&ToolChoice::Auto, false, Finish::Eos, FinishReason::Stop),
            (&ToolChoice::Auto, true, Finish::Eos, FinishReason::ToolCalls),
            (&ToolChoice::Auto, true, Finish::StopString("x".to_owned()), FinishReason::ToolCalls),
            (&ToolChoice::Auto, true, Finish::Length, FinishReason::Length),
            (&ToolChoice::Auto, true, Finish::Repetition, FinishReason::Repetition),
            (&ToolChoice::Auto, true, Finish::Abort, FinishReason::Abort),
            (&ToolChoice::Required, true, Finish::StopToken(1), FinishReason::ToolCalls),
            (&ToolChoice::Required, false, Finish::StopString("x".to_owned()), FinishReason::Stop),
            (&ToolChoice::Required, true, Finish::Length, FinishReason::Length),
            (&named, true, Finish::Eos, FinishReason::Stop),
            (&named, true, Finish::Length, FinishReason::Length),
        ] {
            assert_eq!(ending(&finish, called, choice).0, reason, "{choice:?} {called} {finish:?}");
        }
    }
}
