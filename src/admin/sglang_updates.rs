//! SGLang's updates of weights, between a begin and an end or from a directory alone, and a look at their numbers.

use axum::{
    extract::State,
    response::Response,
    routing::{MethodRouter, get},
};
use serde_json::{Map, Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{Fields, RequiredFields, label_of, only, required_text, text_of, truth_of, weight_name_of, without},
    error::failed,
    json as answer,
    labels::check_label,
    meters::Operation,
    posted,
    weights::{self, DRAFT_IN_ONE_CALL, NO_DRAFT_MODEL},
};
use crate::control::{TensorRows, Update, Updated};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/begin_weight_update", posted(begin)),
        ("/end_weight_update", posted(end)),
        ("/update_weights_from_disk", posted(update_from_disk)),
        ("/get_weights_by_name", get(weights_by_name).post(weights_by_name)),
    ]
}

fn said(success: bool, message: impl Into<String>) -> Value {
    json!({ "success": success, "message": message.into() })
}

/// What SGLang says of what was done.
const SUCCESS: &str = "Success";

/// Answers in SGLang's shape and words.
fn outcome(outcome: Result<String, AdminError>) -> Response {
    match outcome {
        Ok(message) => answer(said(true, message)),
        Err(error) => {
            let words = [
                ("Call to collective_rpc method failed: ", ""),
                ("start_weight_update", "begin_weight_update"),
                ("finish_weight_update", "end_weight_update"),
            ];
            let message = words.iter().fold(error.message().to_owned(), |text, (from, to)| text.replace(from, to));
            failed(&error, said(false, message))
        }
    }
}

/// `POST /begin_weight_update`: an update in parts. Nothing is sampled until it ends.
async fn begin(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["selector"])?;
    check_selector(&admin, &fields, DRAFT_IN_ONE_CALL)?;
    let operation = Operation::Update("start_weight_update");
    let begun = admin.timed(operation, |control| async move { control.start_update_with_directories().await }).await;
    Ok(outcome(begun.map(|()| SUCCESS.to_owned())))
}

/// Whose weights a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selector {
    Target,
    Draft,
}

/// Reads whose weights a call is for: where nothing is said, those of the model.
fn selector(admin: &Shared, fields: &Map<String, Value>) -> Result<Selector, AdminError> {
    let drafts = admin.control.has_draft_model();
    let refused = |message: &str| Err(AdminError::field("body.selector", message));
    match text_of(fields, "selector")?.as_deref() {
        Some("all") if drafts => refused(ONE_AT_A_TIME),
        None | Some("target" | "all") => Ok(Selector::Target),
        Some("draft") if drafts => Ok(Selector::Draft),
        Some("draft") => refused(NO_DRAFT_MODEL),
        Some(other) => refused(&format!("invalid selector '{other}'; expected 'target', 'draft', or 'all'")),
    }
}

/// What is said of calls for the weights of both models.
const ONE_AT_A_TIME: &str = "there is a draft model, and a call is for the weights of one model: `target` or `draft`";

/// Refuses a call for the weights of a draft model, for a reason that counts where there is one.
pub(super) fn check_selector(admin: &Shared, fields: &Map<String, Value>, reason: &str) -> Result<(), AdminError> {
    match selector(admin, fields)? {
        Selector::Target => Ok(()),
        Selector::Draft => Err(AdminError::field("body.selector", reason)),
    }
}

/// `POST /end_weight_update`.
async fn end(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["weight_version"])?;
    let label = weight_name_of(&fields, "weight_version")?;
    let operation = Operation::Update("finish_weight_update");
    let ended =
        admin.timed(operation, |control| async move { control.finish_update(label.map(Into::into)).await }).await;
    Ok(outcome(ended.map(|updated| weights::and_needs(SUCCESS, &updated))))
}

/// Refuses a way to read weights that is not taken here.
pub(super) fn check_load_format(fields: &Map<String, Value>) -> Result<(), AdminError> {
    match text_of(fields, "load_format")?.as_deref() {
        None | Some("auto" | "safetensors") => Ok(()),
        Some(other) => {
            let message = format!(
                "the `load_format` `{other}` is not served: weights are read from safetensors, which `auto` and \
                 `safetensors` name"
            );
            Err(AdminError::field("body.load_format", message))
        }
    }
}

/// The fields of an update from a directory. Nothing here depends on those about torch, graphs of a GPU, and whether SGLang's
/// scheduler waits.
const FROM_DISK: [&str; 12] = [
    "model_path",
    "load_format",
    "abort_all_requests",
    "weight_version",
    "keep_pause",
    "flush_cache",
    "token_step",
    "manifest",
    "selector",
    "is_async",
    "torch_empty_cache",
    "recapture_cuda_graph",
];
/// What an update does that was told to keep the cache.
const FORGOTTEN: &str = " The prefix cache is empty all the same: what other weights computed serves no request here.";

/// What an update from a directory asks for.
struct FromDisk {
    path: String,
    label: Option<String>,
    keeps_cache: bool,
    aborts: bool,
    selector: Selector,
}

impl FromDisk {
    /// Reads the fields, and refuses what an update cannot do.
    fn read(admin: &Shared, fields: &Map<String, Value>) -> Result<Self, AdminError> {
        only(fields, &FROM_DISK)?;
        check_load_format(fields)?;
        let selector = selector(admin, fields)?;
        without(
            fields,
            &[
                ("token_step", "call the weights of a step something by `weight_version`"),
                ("manifest", "safetensors name their tensors themselves"),
            ],
        )?;
        let keeps_cache = !truth_of(fields, "flush_cache", true)?;
        let aborts = truth_of(fields, "abort_all_requests", false)?;
        let label = weight_name_of(fields, "weight_version")?;
        if selector == Selector::Draft {
            let reason = "the weights of the draft model have no version: they change no token";
            without(fields, &[("weight_version", reason)])?;
        }
        if truth_of(fields, "keep_pause", false)? && !admin.control.status().paused {
            let message = "`keep_pause` keeps a pause, and the server is not paused: POST /pause_generation first";
            return Err(AdminError::field("body.keep_pause", message));
        }
        Ok(Self { path: required_text(fields, "model_path")?, label, keeps_cache, aborts, selector })
    }
}

/// `POST /update_weights_from_disk`: an update of its own, or between a begin and an end a part of that one.
async fn update_from_disk(State(admin): State<Shared>, fields: Result<RequiredFields, AdminError>) -> Answered {
    let read = fields.and_then(|RequiredFields(fields)| FromDisk::read(&admin, &fields));
    let FromDisk { path, label, keeps_cache, aborts, selector } = admin.or_end_update(read).await?;
    let told = |success, message| {
        let mut told = said(success, message);
        told["num_paused_requests"] = json!(0);
        told
    };
    let failure = |message: &str| format!("Failed to update weights: {message}.\nRolling back to original weights.");
    if selector == Selector::Draft {
        return Ok(match admin.call(|control| async move { control.update_draft(path.into()).await }).await {
            Ok(_) => {
                if aborts {
                    admin.control.abort_begun();
                }
                answer(told(true, "Succeeded to update the weights of the draft model.".to_owned()))
            }
            Err(error) => failed(&error, told(false, failure(error.message()))),
        });
    }
    let update = Update { path: path.into(), label: label.clone().map(Into::into), aborts };
    let operation = Operation::Update("update_weights");
    let written = admin.timed(operation, |control| async move { control.update_or_part(update).await }).await;
    match written {
        Ok(updated) => {
            let forgotten = if keeps_cache { FORGOTTEN } else { "" };
            Ok(answer(told(true, success(updated.as_ref(), label) + forgotten)))
        }
        Err(error) => {
            let text = failure(error.message());
            Ok(failed(&error, told(false, text)))
        }
    }
}

fn success(updated: Option<&Updated>, label: Option<String>) -> String {
    let Some(updated) = updated else {
        return "Succeeded to write model weights. They sample from /end_weight_update on.".to_owned();
    };
    let version = label.map_or(String::new(), |label| format!(" Weight version updated to {label}."));
    weights::and_needs(&format!("Succeeded to update model weights.{version}"), updated)
}

/// `POST /destroy_weights_update_group`: there is no group, which SGLang says in these words. Its clients go on then.
pub(super) async fn destroy_group(Fields(fields): Fields) -> Answered {
    only(&fields, &["group_name"])?;
    label_of(&fields, "group_name")?;
    let error = AdminError::bad("The group to be destroyed does not exist.");
    Ok(failed(&error, said(false, error.message())))
}

/// What a client is told that asks for work on weights which are ready.
const READY: &str = "Success. There was nothing to do: each update makes its weights ready by itself.";

/// `POST /post_process_weights`, which miles posts after each update: the weights are as they are computed with, since each
/// update sees to that. Those of `post_load_weights` would have come by RDMA, so that they are not here.
pub(super) async fn post_process(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["restore_weights_before_load", "post_process_quantization", "post_load_weights"])?;
    truth_of(&fields, "restore_weights_before_load", false)?;
    truth_of(&fields, "post_process_quantization", false)?;
    if truth_of(&fields, "post_load_weights", false)? {
        let refused = weights::not_from_memory().await;
        return admin.or_end_update(Err(refused.at("body.post_load_weights"))).await;
    }
    if admin.control.status().updating {
        let error = AdminError::bad("an update of weights is under way, and its end makes them ready");
        return Ok(failed(&error, said(false, error.message())));
    }
    Ok(answer(said(true, READY)))
}

/// Rows of a tensor where nobody says how many.
const ROWS: usize = 100;
/// Numbers of the longest answer, some tens of megabytes of text.
const MOST_NUMBERS: usize = 1 << 22;

/// Returns how many rows are asked for.
fn rows_of(fields: &Map<String, Value>) -> Result<usize, AdminError> {
    let Some(value) = fields.get("truncate_size").filter(|value| !value.is_null()) else { return Ok(ROWS) };
    let rows = value.as_u64().and_then(|rows| usize::try_from(rows).ok());
    rows.ok_or_else(|| AdminError::field("body.truncate_size", "`truncate_size` must be a number of rows"))
}

/// `/get_weights_by_name`: the first rows of a tensor, in numbers.
async fn weights_by_name(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &["name", "truncate_size"])?;
    let name = required_text(&fields, "name")?;
    check_label("body.name", Some(&name))?;
    let rows = rows_of(&fields)?;
    let Some(shape) = admin.control.tensor_shape(&name) else {
        let message = format!(
            "Get parameter by name failed: the model has no tensor `{name}`; POST /weight_checker with the action \
             `checksum` names all"
        );
        return Err(AdminError::field("body.name", message));
    };
    let numbers = shape.iter().skip(1).product::<usize>() * shape.first().map_or(1, |&all| all.min(rows));
    if numbers > MOST_NUMBERS {
        let message = format!("so many rows are {numbers} numbers, and an answer has at most {MOST_NUMBERS}");
        return Err(AdminError::field("body.truncate_size", message));
    }
    let TensorRows { shape, numbers } =
        admin.call(|control| async move { control.tensor_rows(&name, rows).await }).await?;
    Ok(answer(nested(&shape, &numbers)))
}

/// Numbers in lists of lists, as a tensor of this shape has them.
fn nested(shape: &[usize], numbers: &[f32]) -> Value {
    match shape {
        [] => json!(numbers.first()),
        [_] => json!(numbers.iter().map(|&number| f64::from(number)).collect::<Vec<_>>()),
        [rows, row @ ..] => {
            let width: usize = row.iter().product();
            (0..*rows).map(|index| nested(row, &numbers[index * width..][..width])).collect()
        }
    }
}
