//! SGLang's call for an adapter whose tensors are in the body.

use super::{
    AdminError, Answered,
    body::{RequiredFields, required_text},
};

const PICKLES: &str = "SGLang's `serialized_named_tensors` are pickles, which are not read here; a pickle could run any code. Send \
                       the adapter as safetensors in the body of POST /v1/load_lora_adapter?lora_name=NAME, with the media \
                       type application/octet-stream and the text of `config_dict` as the metadata `adapter_config`; or \
                       write it to a directory that the server can read, and POST /load_lora_adapter with {\"lora_name\": \
                       \"NAME\", \"lora_path\": \"...\"}";

/// `POST /load_lora_adapter_from_tensors`: the tensors are pickles, and no pickle is read.
pub(super) async fn load_from_tensors(RequiredFields(fields): RequiredFields) -> Answered {
    required_text(&fields, "lora_name")?;
    Err(AdminError::not_here(PICKLES))
}
