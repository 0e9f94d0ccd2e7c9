//! How the answers of a turn are sampled.

use std::sync::Arc;

use super::{RouteWishes, SamplingPolicy};
use crate::{
    TokenId,
    engine::Adapter,
    generation::TextOptions,
    parser::{AnswerForm, CallInReasoning, OutputFormat, ReasoningFormat, ToolFormat},
    sampling::{
        Candidates, FinishReason, Logprobs, SamplingError, SamplingParams, SharedConstraint, ValidSamplingParams,
    },
    structured::{Constraint, Demand, ReasoningEnd, SingleCall, ThinkingBudget},
    tokenizer::Tokenizer,
};

/// Valid parameters, before it is known how much room there is for the output.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct Sampling {
    params: ValidSamplingParams,
    /// The constraint on the output, which is not compiled yet.
    constraint: Option<Constraint>,
    /// Who put the constraint on the output.
    demanded_by: DemandedBy,
    /// What the constraint says about the text of the answer.
    form: AnswerForm,
    /// The constraint that was compiled, and after which tokens it begins.
    compiled: Option<(Arc<Constraint>, Option<ReasoningEnd>)>,
    /// The marks of calls of which an answer without a constraint has each once; none where it calls as often as it likes.
    single_marks: Vec<TokenId>,
    /// What that is for the prompt.
    single_call: Option<SingleCall>,
    /// The number of sequences to generate.
    pub n: usize,
    /// The number of tokens to generate, if the request or the model sets one.
    pub max_tokens: Option<usize>,
    /// At most this many tokens are sampled for any request of this server.
    most_tokens: Option<usize>,
    /// How tokens become text.
    pub text: Arc<TextOptions>,
    /// The number of alternatives for each position of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// Tokens whose log-probs are reported at positions of the prompt.
    pub candidates: Option<Arc<Candidates>>,
    /// Whether the answer names tokens `token_id:N` instead of by their texts.
    pub tokens_as_ids: bool,
    /// Whether the answer shows token ids.
    pub return_token_ids: bool,
    /// Whether the answer shows which weights sampled its tokens.
    pub return_weight_versions: bool,
    /// At most this many tokens of thoughts, if the request sets a bound.
    pub thinking_budget: Option<usize>,
    /// The adapter that samples; `None` for the model itself.
    pub adapter: Option<Arc<Adapter>>,
    /// Requests with the same salt share cached prefixes.
    pub cache_salt: Option<Arc<str>>,
    /// What the request says about the experts that tokens go through.
    pub routes: RouteWishes,
    /// Whether only the prompt is scored. The token that comes of that is nobody's, and no turn.
    pub scores_only: bool,
}

/// Who puts a constraint on an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DemandedBy {
    /// The form that a request demands, alone.
    Form,
    /// Calls, and beside them perhaps a form.
    Calls,
}

impl Sampling {
    /// Makes the sampling of one sequence with these parameters, the settings of `policy` and no constraint.
    pub fn new(params: ValidSamplingParams, policy: &SamplingPolicy) -> Self {
        Self {
            params,
            constraint: None,
            demanded_by: DemandedBy::Form,
            form: AnswerForm::default(),
            compiled: None,
            single_marks: Vec::new(),
            single_call: None,
            n: 1,
            max_tokens: None,
            most_tokens: policy.most_tokens,
            text: Arc::default(),
            prompt_logprobs: None,
            candidates: None,
            tokens_as_ids: policy.return_tokens_as_token_ids,
            return_token_ids: false,
            return_weight_versions: false,
            thinking_budget: None,
            adapter: None,
            cache_salt: None,
            routes: RouteWishes::default(),
            scores_only: false,
        }
    }

    /// Parses reasoning and tool calls out of the text, in the format that is given, and as the constraint on it says that
    /// was demanded before.
    pub fn read(&mut self, format: OutputFormat) {
        Arc::make_mut(&mut self.text).format = format.with_form(self.form);
    }

    /// Leaves thoughts and calls in the text, which are told in the format that is given; `unseen` says that nobody sees
    /// the text, so that it has their marks.
    pub fn leave_unread(&mut self, format: OutputFormat, unseen: bool) {
        let format = format.with_form(self.form);
        let text = Arc::make_mut(&mut self.text);
        (text.unread, text.unseen) = (format, unseen);
    }

    /// Whether the whole answer, apart from reasoning in front of it, has a form.
    pub(super) fn has_form(&self) -> bool {
        self.form.to_the_letter
    }

    /// Returns how thoughts are told from the answer, if they are.
    pub fn reasoning(&self) -> Option<ReasoningFormat> {
        self.text.reasoning()
    }

    /// Sets the constraint on the output, instead of any earlier one.
    pub fn demand(&mut self, constraint: Constraint) {
        let is_json = matches!(constraint, Constraint::Json(..) | Constraint::JsonObject(..));
        let call = if is_json { CallInReasoning::Text } else { CallInReasoning::EndsUnended };
        self.form = AnswerForm { to_the_letter: true, call };
        self.constraint = Some(constraint);
    }

    /// Sets the constraint that calls put on the output, instead of any earlier one, and what it says about the text.
    pub fn demand_calls(&mut self, constraint: Constraint, form: AnswerForm) {
        self.constraint = Some(constraint);
        self.demanded_by = DemandedBy::Calls;
        self.form = form;
    }

    /// Has an answer without a constraint call as often as the format of its calls says, as far as tokens begin them.
    pub fn count_calls(&mut self, format: Option<&ToolFormat>, tokenizer: &Tokenizer) {
        let single = format.filter(|format| format.first_only).map(ToolFormat::begins_single_call);
        self.single_marks = single.into_iter().flatten().filter_map(|mark| tokenizer.id_of(mark)).collect();
    }

    /// Whether an answer without a constraint calls once at most.
    pub(super) fn calls_once(&self) -> bool {
        !self.single_marks.is_empty()
    }

    /// Sets after which tokens the marks of calls begin to count; until then, they do not.
    pub(super) fn count_calls_after(&mut self, reasoning_end: Option<ReasoningEnd>) {
        self.single_call = Some(SingleCall { marks: self.single_marks.clone(), reasoning_end });
    }

    /// Whether calls put a constraint on the output.
    pub fn holds_calls(&self) -> bool {
        self.demanded_by == DemandedBy::Calls
    }

    /// The constraint on the output, before it is compiled.
    pub fn constraint(&self) -> Option<&Constraint> {
        self.constraint.as_ref()
    }

    /// Takes the constraint on the output, to be compiled.
    pub fn take_constraint(&mut self) -> Option<Constraint> {
        self.constraint.take()
    }

    /// Sets the compiled constraint, which the output has to keep, and says what it was compiled of.
    pub(super) fn set_compiled(
        &mut self,
        compiled: SharedConstraint,
        constraint: Arc<Constraint>,
        reasoning_end: Option<ReasoningEnd>,
    ) {
        self.params.constrain(compiled);
        self.compiled = Some((constraint, reasoning_end));
    }

    /// Says all that the output has to keep to, once it is compiled; `None` where nothing is demanded.
    pub(super) fn demand_with(&self, budget: Option<ThinkingBudget>) -> Option<Demand> {
        let (constraint, reasoning_end) = match &self.compiled {
            Some((constraint, end)) => (Some(Constraint::clone(constraint)), *end),
            None => (None, None),
        };
        let demand = Demand { constraint, reasoning_end, budget, single_call: self.single_call.clone() };
        (demand.constraint.is_some() || budget.is_some() || demand.single_call.is_some()).then_some(demand)
    }

    /// Whether the output has a compiled constraint.
    pub fn is_constrained(&self) -> bool {
        self.params.constraint.is_some()
    }

    /// Whether there is a token that ends an output.
    pub(super) fn can_end(&self) -> bool {
        let SamplingParams { eos_token_id, extra_eos_token_ids, stop_token_ids, .. } = &*self.params;
        eos_token_id.is_some() || !extra_eos_token_ids.is_empty() || !stop_token_ids.is_empty()
    }

    /// Returns the stop tokens of the request, which may also close a message.
    pub fn stop_token_ids(&self) -> &[TokenId] {
        &self.params.stop_token_ids
    }

    /// Whether an output ends with this token, its `sampled`-th one.
    pub fn ends_with(&self, id: TokenId, sampled: usize) -> bool {
        matches!(self.params.finish_after(id, sampled), Some(FinishReason::Eos | FinishReason::StopToken(_)))
    }

    /// Whether each token comes with the tokens that it was drawn from.
    pub fn wants_mask(&self) -> bool {
        self.params.sampling_mask.is_some()
    }

    /// Whether sampling is greedy: the most probable token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.params.is_greedy()
    }

    /// Returns how many tokens must be sampled before one may end a sequence.
    pub fn min_tokens(&self) -> usize {
        self.params.min_tokens
    }

    /// Whether log-probs were asked for.
    pub fn wants_logprobs(&self) -> bool {
        self.params.logprobs.is_some()
    }

    /// Returns how many alternatives are reported for a token.
    pub fn alternatives(&self) -> usize {
        match &self.params.logprobs {
            None => 0,
            Some(Logprobs::Top(top)) => *top,
            Some(Logprobs::All) => usize::MAX,
            Some(Logprobs::Ids(ids)) => ids.len(),
        }
    }

    /// Returns the largest number of tokens that a sequence may have in `room`.
    pub fn most_tokens(&self, room: usize) -> usize {
        [self.max_tokens, self.most_tokens].into_iter().flatten().fold(room, usize::min)
    }

    /// Whether the request keeps `id` from being sampled, whatever came before it.
    pub(super) fn forbids(&self, id: TokenId) -> bool {
        let is_allowed = self.params.allowed_token_ids.as_ref().is_none_or(|allowed| allowed.contains(&id));
        !is_allowed || self.params.bad_words.iter().any(|word| *word == [id])
    }

    /// Returns the parameters of the first sequence, with `room` tokens left in the context, and with the budget for
    /// thoughts where there is one.
    pub(super) fn params(
        &self,
        room: usize,
        budget: Option<ThinkingBudget>,
        vocab_size: usize,
    ) -> Result<Arc<ValidSamplingParams>, SamplingError> {
        let mut params = self.params.with_max_tokens(self.most_tokens(room))?;
        if let Some(single) = self.single_call.as_ref().filter(|_| params.constraint.is_none()) {
            params.constrain(single.constraint(vocab_size));
        }
        if let Some(budget) = budget {
            let constraint = params.constraint.clone();
            params.constrain(budget.with(constraint));
        }
        Ok(Arc::new(params))
    }
}
