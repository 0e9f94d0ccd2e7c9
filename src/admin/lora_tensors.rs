//! SGLang's call for an adapter whose tensors are in the body.

use axum::{extract::State, response::Response};
use serde_json::{Map, Value};

use super::{
    AdminError, Answered, Shared,
    body::{RequiredFields, required_text},
};

const PICKLES: &str = "SGLang's `serialized_named_tensors` are pickles, which could run any code and are not read here: send \
                       the adapter as safetensors in the body of POST /v1/load_lora_adapter?lora_name=NAME, with the media \
                       type application/octet-stream and the text of `config_dict` as the metadata `adapter_config`; or \
                       write it to a directory that the server can read, and POST /load_lora_adapter with {\"lora_name\": \
                       \"NAME\", \"lora_path\": \"...\"}";

/// `POST /load_lora_adapter_from_tensors`: the tensors are pickles, and no pickle is read.
pub(super) async fn load_from_tensors(State(_): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    Err::<Response, _>(refusal(&fields))
}

fn refusal(fields: &Map<String, Value>) -> AdminError {
    match required_text(fields, "lora_name") {
        Err(error) => error,
        Ok(_) => AdminError::not_here(PICKLES),
    }
}
