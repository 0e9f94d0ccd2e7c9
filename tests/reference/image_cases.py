"""The models that read images and that the native engine is compared with transformers on.

Owns: CASES, and IMAGES, which are made of a formula and no file. A prompt is a list of ids and of names of images, in
whose place their placeholders stand.
"""

from variants import Case

PLACEHOLDER = 90
VOCABULARY = 96
# Rows and columns of what is joined, and what pixels are made with.
IMAGES = {
    "wide": (2, 3, 1), "tall": (5, 1, 2), "one": (1, 1, 3), "square": (3, 3, 4), "large": (6, 5, 5), "same": (2, 3, 6),
    "second": (3, 3, 7), "third": (3, 3, 8), "squares": (9, 3, 9),
}
# There is text between two images, since transformers takes placeholders side by side for those of one.
PROMPTS = {
    "text": [1, 7, 20, 33, 5, 61, 44, 2, 80],
    "one_image": [3, 11, "wide", 12, 40, 41],
    "image_first": ["tall", 9],
    "image_alone": ["one"],
    "two_images": [3, 11, "square", 12, 50, 51, 11, "wide", 12, 7],
    "of_one_size": [4, 11, "wide", 12, 11, "same", 12, 8, 11, "one", 12],
    "later_turn": [*range(5, 45), 11, "large", 12, 70, 71, 72, *range(30, 50)],
}

# Those of Gemma 3, whose images have one size. The last one is longer than the windows.
GEMMA3_PROMPTS = {
    "text": [1, 7, 20, 33, 5, 61, 44, 2, 80],
    "one_image": [3, 11, "square", 12, 40, 41],
    "image_first": ["square", 9],
    "image_alone": ["third"],
    "two_images": [3, 11, "square", 12, 50, 51, 11, "second", 12, 7],
    "the_same_twice": [4, 11, "third", 12, 11, "third", 12, 8],
    "later_turn": [*range(5, 45), 11, "second", 12, 70, 71, 72, *range(30, 50)],
    "over_a_stride": [*range(1, 70), *range(1, 55), 11, "second", 12, 70, 11, "third", 12, *range(30, 50)],
}

# Those of Mistral 3, whose rows have ends, so that images may stand side by side. transformers fails on an image of one
# token alone.
MISTRAL3_ENDS = (92, 93)
MISTRAL3_PROMPTS = {
    "text": [1, 7, 20, 33, 5, 61, 44, 2, 80],
    "one_image": [3, 11, "wide", 12, 40, 41],
    "image_first": ["tall", 9],
    "image_alone": ["square"],
    "two_images": [3, 11, "square", 12, 50, 51, 11, "wide", 12, 7],
    "side_by_side": [4, "wide", "same", 8, "one", "tall", 12],
    "later_turn": [*range(5, 45), 11, "large", 12, 70, 71, 72, *range(30, 50)],
}

# Those of InternVL, whose images are squares, one below the other, between two ids of their own.
INTERNVL_MARKS = (92, 93)
INTERNVL_PROMPTS = {
    "text": [1, 7, 20, 33, 5, 61, 44, 2, 80],
    "one_image": [3, 11, "square", 12, 40, 41],
    "image_first": ["second", 9],
    "image_alone": ["third"],
    "squares": [3, "squares", 40, 41],
    "two_images": [3, 11, "square", 12, 50, 51, "squares", 7],
    "side_by_side": [4, "second", "square", 8, "second", 12],
    "later_turn": [*range(5, 45), 11, "squares", 12, 70, 71, 72, *range(30, 50)],
}

TEXT = {
    "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 512,
    "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "vocab_size": VOCABULARY,
}
OUTER = {"image_token_id": PLACEHOLDER, "video_token_id": 91, "vision_start_token_id": 11, "vision_end_token_id": 12}

# As published: the settings of the text beside that of the tower, and no type of it.
QWEN2_5_VISION = {
    "depth": 3, "hidden_act": "silu", "hidden_size": 24, "intermediate_size": 28, "num_heads": 2, "in_chans": 3,
    "out_hidden_size": 32, "patch_size": 4, "spatial_merge_size": 2, "spatial_patch_size": 4, "window_size": 16,
    "fullatt_block_indexes": [1], "tokens_per_second": 2, "temporal_patch_size": 2,
}
QWEN2_5 = {
    **TEXT, **OUTER, "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": 32768,
    "max_window_layers": 3, "rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 1]},
    "vision_config": QWEN2_5_VISION,
}
QWEN3_VISION = {
    "deepstack_visual_indexes": [0, 2], "depth": 4, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 24,
    "in_channels": 3, "intermediate_size": 28, "model_type": "qwen3_vl", "num_heads": 2, "num_position_embeddings": 25,
    "out_hidden_size": 32, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
}
QWEN3_TEXT = {
    **TEXT, "attention_bias": False, "head_dim": 16, "model_type": "qwen3_vl_text",
    "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
}
QWEN3 = {**OUTER, "tie_word_embeddings": False, "text_config": QWEN3_TEXT, "vision_config": QWEN3_VISION}
QWEN3_EXPERTS = {
    "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}
# Published towers say that they have no deepstack.
QWEN3_5_VISION = {**QWEN3_VISION, "deepstack_visual_indexes": [], "model_type": "qwen3_5"}
QWEN3_5_ROPE = {
    "mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
    "rope_type": "default",
}
QWEN3_5_TEXT = {
    **{key: value for key, value in TEXT.items() if key != "rope_theta"}, "attention_bias": False,
    "attn_output_gate": True, "full_attention_interval": 2, "head_dim": 16, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 8,
    "model_type": "qwen3_5_text", "num_hidden_layers": 4, "rope_parameters": QWEN3_5_ROPE,
}
QWEN3_5_EXPERTS = {
    "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 24,
}


def qwen2_5(name, style="given", without=(), vision=(), **changes):
    settings = {**QWEN2_5, **changes, "vision_config": {**QWEN2_5_VISION, **dict(vision)}}
    # Published names are older than those that transformers has in memory.
    prefixes = {"language_model": "model.", "visual": "visual."}
    published = (r"^model\.(language_model|visual)\.", lambda found: prefixes[found[1]])
    described = (f"qwen2_5_vl_{name}", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", settings, style)
    return Case(*described, list(without), published=published)


def qwen3_moe(name, style="given", without=(), vision=(), text=(), **changes):
    vision_config = {**QWEN3_VISION, "model_type": "qwen3_vl_moe", **dict(vision)}
    settings = {**QWEN3, "text_config": {**QWEN3_TEXT, **QWEN3_EXPERTS, **dict(text)}, "vision_config": vision_config}
    described = ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", {**settings, **changes}, style)
    return Case(f"qwen3_vl_moe_{name}", *described, list(without))


def qwen3_5(name, style="given", without=(), vision=(), text=(), **changes):
    parts = {"text_config": {**QWEN3_5_TEXT, **dict(text)}, "vision_config": {**QWEN3_5_VISION, **dict(vision)}}
    described = ("Qwen3_5ForConditionalGeneration", "qwen3_5", {**QWEN3, **parts, **changes}, style)
    return Case(f"qwen3_5_{name}", *described, list(without))


def qwen3_5_moe(name, style="given", without=(), vision=(), text=(), **changes):
    vision_config = {**QWEN3_5_VISION, "model_type": "qwen3_5_moe", **dict(vision)}
    text_config = {**QWEN3_5_TEXT, **QWEN3_5_EXPERTS, **dict(text)}
    settings = {**QWEN3, "text_config": text_config, "vision_config": vision_config, **changes}
    described = ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", settings, style)
    return Case(f"qwen3_5_moe_{name}", *described, list(without))


def qwen3(name, style="given", without=(), vision=(), text=(), **changes):
    parts = {"text_config": {**QWEN3_TEXT, **dict(text)}, "vision_config": {**QWEN3_VISION, **dict(vision)}}
    settings = {**QWEN3, **parts, **changes}
    described = (f"qwen3_vl_{name}", "Qwen3VLForConditionalGeneration", "qwen3_vl", settings, style)
    return Case(*described, list(without))


GEMMA3_VISION = {
    "hidden_size": 24, "image_size": 24, "intermediate_size": 28, "model_type": "siglip_vision_model",
    "num_attention_heads": 2, "num_hidden_layers": 3, "patch_size": 4, "vision_use_head": False,
}
GEMMA3_TEXT = {
    "head_dim": 16, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 512,
    "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
    "query_pre_attn_scalar": 16, "rms_norm_eps": 1e-6, "sliding_window": 16, "sliding_window_pattern": 2,
    "vocab_size": VOCABULARY,
}
GEMMA3 = {
    "boi_token_index": 11, "eoi_token_index": 12, "image_token_index": PLACEHOLDER, "mm_tokens_per_image": 9,
    "text_config": GEMMA3_TEXT, "vision_config": GEMMA3_VISION,
}


def gemma3(name, style="given", without=(), vision=(), text=(), **changes):
    parts = {"text_config": {**GEMMA3_TEXT, **dict(text)}, "vision_config": {**GEMMA3_VISION, **dict(vision)}}
    settings = {**GEMMA3, **parts, **changes}
    return Case(f"gemma3_{name}", "Gemma3ForConditionalGeneration", "gemma3", settings, style, list(without))


# As published: the base of frequencies by itself.
MISTRAL3_VISION = {
    "attention_dropout": 0.0, "head_dim": 12, "hidden_act": "silu", "hidden_size": 24, "image_size": 56,
    "intermediate_size": 28, "model_type": "pixtral", "num_attention_heads": 2, "num_channels": 3, "num_hidden_layers": 2,
    "patch_size": 4, "rope_theta": 10000.0,
}
MISTRAL3_TEXT = {**TEXT, "head_dim": 16, "model_type": "mistral", "sliding_window": None}
MISTRAL3 = {
    "image_token_index": PLACEHOLDER, "multimodal_projector_bias": False, "projector_hidden_act": "gelu",
    "spatial_merge_size": 2, "text_config": MISTRAL3_TEXT, "tie_word_embeddings": False, "vision_config": MISTRAL3_VISION,
    "vision_feature_layer": -1,
}
MINISTRAL3_ROPE = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
    "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5,
}
WITHOUT_THETA = {key: value for key, value in TEXT.items() if key != "rope_theta"}
MINISTRAL3_TEXT = {**WITHOUT_THETA, "head_dim": 16, "model_type": "ministral3", "rope_parameters": MINISTRAL3_ROPE}
MISTRAL4_TEXT = {
    **WITHOUT_THETA, "first_k_dense_replace": 0, "kv_lora_rank": 16, "model_type": "mistral4", "moe_intermediate_size": 24,
    "n_group": 1, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True, "num_experts_per_tok": 2,
    "num_key_value_heads": 4, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "rope_parameters": {**MINISTRAL3_ROPE, "llama_4_scaling_beta": 0.1}, "routed_scaling_factor": 1.0, "topk_group": 1, "v_head_dim": 12,
}


def mistral3(name, style="given", without=(), vision=(), text=(), of_text=MISTRAL3_TEXT, **changes):
    parts = {"text_config": {**of_text, **dict(text)}, "vision_config": {**MISTRAL3_VISION, **dict(vision)}}
    settings = {**MISTRAL3, **parts, **changes}
    return Case(f"mistral3_{name}", "Mistral3ForConditionalGeneration", "mistral3", settings, style, list(without))


# As published: sides twice.
INTERNVL_VISION = {
    "attention_bias": True, "attention_dropout": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 24,
    "image_size": [24, 24], "intermediate_size": 28, "layer_norm_eps": 1e-6, "layer_scale_init_value": 0.1,
    "model_type": "internvl_vision", "norm_type": "layer_norm", "num_attention_heads": 2, "num_channels": 3,
    "num_hidden_layers": 3, "patch_size": [4, 4], "projection_dropout": 0.0, "use_absolute_position_embeddings": True,
    "use_mask_token": False, "use_mean_pooling": True, "use_qk_norm": False,
}
INTERNVL_TEXT = {**TEXT, "model_type": "qwen2", "use_sliding_window": False}
INTERNVL = {
    "downsample_ratio": 0.5, "image_seq_length": 9, "image_token_id": PLACEHOLDER, "projector_hidden_act": "gelu",
    "text_config": INTERNVL_TEXT, "tie_word_embeddings": False, "vision_config": INTERNVL_VISION, "vision_feature_layer": -1,
    "vision_feature_select_strategy": "default",
}
INTERNVL_QWEN3 = {**TEXT, "attention_bias": False, "head_dim": 16, "model_type": "qwen3"}
INTERNVL_EXPERTS = {
    **INTERNVL_QWEN3, "model_type": "qwen3_moe", "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}
# That of the largest tower.
INTERNVL_ROOT_NORMS = {
    "attention_bias": False, "norm_type": "rms_norm", "num_attention_heads": 3, "patch_size": [2, 2], "use_qk_norm": True,
}


def internvl(name, style="given", without=(), vision=(), text=(), of_text=INTERNVL_TEXT, **changes):
    parts = {"text_config": {**of_text, **dict(text)}, "vision_config": {**INTERNVL_VISION, **dict(vision)}}
    settings = {**INTERNVL, **parts, **changes}
    return Case(f"internvl_{name}", "InternVLForConditionalGeneration", "internvl", settings, style, list(without))


GLM4V_VISION = {
    "attention_bias": False, "attention_dropout": 0.0, "depth": 3, "hidden_act": "silu", "hidden_size": 24, "image_size": 21,
    "in_channels": 3, "intermediate_size": 28, "model_type": "glm4v_vision", "num_heads": 2, "out_hidden_size": 32,
    "patch_size": 4, "rms_norm_eps": 1e-5, "spatial_merge_size": 2, "temporal_patch_size": 2,
}
GLM4V_ROPE = {"mrope_section": [1, 2, 1], "rope_type": "default"}
GLM4V_TEXT = {
    **TEXT, "attention_bias": True, "model_type": "glm4v_text", "num_attention_heads": 2, "num_key_value_heads": 1,
    "partial_rotary_factor": 0.5, "rope_scaling": GLM4V_ROPE,
}
GLM4V_EXPERTS = {
    **GLM4V_TEXT, "first_k_dense_replace": 1, "head_dim": 16, "model_type": "glm4v_moe_text", "moe_intermediate_size": 24,
    "n_group": 1, "n_routed_experts": 4, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 4,
    "num_experts_per_tok": 2, "num_key_value_heads": 2, "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": False,
}
GLM4V = {
    "image_end_token_id": 12, "image_start_token_id": 11, "image_token_id": PLACEHOLDER, "tie_word_embeddings": False,
    "video_end_token_id": 14, "video_start_token_id": 13, "video_token_id": 91,
}


def glm4v_of(family, architecture, of_text):
    """A function that makes cases of one of the three classes, with this text unless another one is given."""

    def case(name, style="given", without=(), vision=(), text=(), of_text=of_text, **changes):
        kind = "glm4v_moe_vision" if family == "glm4v_moe" else "glm4v_vision"
        vision_config = {**GLM4V_VISION, "model_type": kind, **dict(vision)}
        settings = {**GLM4V, "text_config": {**of_text, **dict(text)}, "vision_config": vision_config, **changes}
        return Case(f"{family}_{name}", architecture, family, settings, style, list(without))

    return case


glm4v = glm4v_of("glm4v", "Glm4vForConditionalGeneration", GLM4V_TEXT)
glm4v_moe = glm4v_of("glm4v_moe", "Glm4vMoeForConditionalGeneration", GLM4V_EXPERTS)
glm46v = glm4v_of("glm46v", "Glm46VForConditionalGeneration", GLM4V_TEXT)

CASES = [
    glm4v("plain", without=[
        {"vision_config": {**GLM4V_VISION, "num_heads": 3}},
        {"vision_config": {**GLM4V_VISION, "rope_parameters": {"rope_theta": 100.0, "rope_type": "axial"}}},
        {"text_config": {**GLM4V_TEXT, "rope_scaling": {**GLM4V_ROPE, "mrope_section": [2, 1, 1]}}},
    ]),
    glm4v("full", style="full", text={"rms_norm_eps": 1e-2, "rope_theta": 500.0}, vision={"rms_norm_eps": 1e-2}),
    glm4v("tied", tie_word_embeddings=True, vision={"attention_bias": True, "image_size": 40, "num_heads": 3}),
    glm4v("wide_blocks", vision={
        "image_size": 9, "patch_size": 3, "spatial_merge_size": 3, "temporal_patch_size": 1,
    }),
    glm4v_moe("plain", without=[
        {"text_config": {**GLM4V_EXPERTS, "num_experts_per_tok": 1}},
        {"text_config": {**GLM4V_EXPERTS, "rope_scaling": {**GLM4V_ROPE, "mrope_section": [2, 1, 1]}}},
    ]),
    glm4v_moe("full", style="full", text={
        "attention_bias": False, "n_routed_experts": 6, "num_experts_per_tok": 3, "rms_norm_eps": 1e-2, "routed_scaling_factor": 1.5,
    }),
    glm46v("plain"),
    glm46v("moe", style="full", of_text=GLM4V_EXPERTS, vision={"model_type": "glm4v_moe_vision"}),
    internvl("plain", without=[
        {"vision_config": {**INTERNVL_VISION, "layer_norm_eps": 1e-1}},
        {"vision_config": {**INTERNVL_VISION, "num_attention_heads": 3}},
    ]),
    internvl("full", style="full", text={"rms_norm_eps": 1e-2, "rope_theta": 500.0}, vision={"layer_norm_eps": 1e-2}),
    internvl("root_norms", of_text=INTERNVL_QWEN3, downsample_ratio=0.25, vision=INTERNVL_ROOT_NORMS, without=[
        {"vision_config": {**INTERNVL_VISION, **INTERNVL_ROOT_NORMS, "num_attention_heads": 2}},
    ]),
    internvl("last_norm", tie_word_embeddings=True, vision={"use_mean_pooling": False, "use_mask_token": True}),
    internvl("qwen3_moe", of_text=INTERNVL_EXPERTS, without=[
        {"text_config": {**INTERNVL_EXPERTS, "num_experts_per_tok": 1}},
    ]),
    internvl("llama", of_text={**TEXT, "model_type": "llama"}),
    # Frequencies that depend on the length of sequences, beyond those that are served.
    internvl("dynamic", text={"rope_scaling": {"factor": 2.0, "rope_type": "dynamic", "type": "dynamic"}}),
    mistral3("plain", without=[
        {"vision_config": {**MISTRAL3_VISION, "rope_theta": 100.0}},
        {"vision_config": {**MISTRAL3_VISION, "hidden_act": "gelu"}},
    ]),
    mistral3("full", style="full", multimodal_projector_bias=True, text={"rms_norm_eps": 1e-2, "rope_theta": 500.0}),
    mistral3("wide_blocks", spatial_merge_size=3, vision={
        "patch_size": 3, "num_attention_heads": 3, "head_dim": 8, "hidden_act": "gelu", "rope_theta": 100.0,
    }, text={"sliding_window": 6}),
    mistral3("ministral3", of_text=MINISTRAL3_TEXT, tie_word_embeddings=True, without=[
        {"text_config": {**MINISTRAL3_TEXT, "rope_parameters": {**MINISTRAL3_ROPE, "llama_4_scaling_beta": 0.0}}},
    ]),
    mistral3("mistral4", of_text=MISTRAL4_TEXT, text={"num_hidden_layers": 2}),
    gemma3("plain", without=[
        {"text_config": {**GEMMA3_TEXT, "sliding_window": 512}},
        {"text_config": {**GEMMA3_TEXT, "sliding_window_pattern": 3}},
    ]),
    gemma3("full", style="full", text={"rms_norm_eps": 1e-2}, vision={"layer_norm_eps": 1e-2}),
    # A window that is shorter than an image.
    gemma3("short_window", text={"sliding_window": 6}, without=[{"text_config": GEMMA3_TEXT}]),
    gemma3("untied", tie_word_embeddings=False, text={"tie_word_embeddings": False},
           vision={"num_attention_heads": 3, "patch_size": 2}),
    qwen2_5("plain", without=[
        {"vision_config": {**QWEN2_5_VISION, "fullatt_block_indexes": [0, 1, 2]}},
        {"vision_config": {**QWEN2_5_VISION, "window_size": 24}},
        {"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}},
    ]),
    qwen2_5("full", style="full", rms_norm_eps=1e-2, rope_theta=500.0),
    qwen2_5("tied", tie_word_embeddings=True, vision={"window_size": 24, "fullatt_block_indexes": [0, 2]}),
    qwen2_5("whole", vision={"fullatt_block_indexes": [0, 1, 2], "num_heads": 3}),
    qwen3("plain", without=[
        {"vision_config": {**QWEN3_VISION, "deepstack_visual_indexes": [0, 1]}},
        {"text_config": {**QWEN3_TEXT, "rope_scaling": {"mrope_section": [8, 0, 0], "rope_type": "default"}}},
    ]),
    qwen3("full", style="full", text={"rms_norm_eps": 1e-2, "rope_theta": 500.0}),
    qwen3("tied", tie_word_embeddings=True, text={"attention_bias": True}, vision={"num_position_embeddings": 49}),
    qwen3("no_deepstack", vision={
        "deepstack_visual_indexes": [], "num_heads": 3, "temporal_patch_size": 1, "patch_size": 5,
    }),
    qwen3_moe("plain", without=[
        {"vision_config": {**QWEN3_VISION, "model_type": "qwen3_vl_moe", "deepstack_visual_indexes": [0, 1]}},
        {"text_config": {**QWEN3_TEXT, **QWEN3_EXPERTS, "num_experts_per_tok": 1}},
    ]),
    qwen3_moe("full", style="full", text={"rms_norm_eps": 1e-2, "num_experts_per_tok": 3, "num_experts": 6}),
    qwen3_moe("dense_layer", text={"mlp_only_layers": [1], "attention_bias": True}, tie_word_embeddings=True),
    qwen3_5("plain", without=[
        {"text_config": {**QWEN3_5_TEXT, "rope_parameters": {**QWEN3_5_ROPE, "mrope_section": [4, 0, 0]}}},
    ]),
    qwen3_5("full", style="full", text={"rms_norm_eps": 1e-2}),
    # The sections of the release, of which only those of pairs that there are count.
    qwen3_5("default_sections", text={
        "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 20000.0, "rope_type": "default"},
    }),
    qwen3_5("yarn", text={
        "rope_parameters": {
            **QWEN3_5_ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        },
    }, without=[{"text_config": QWEN3_5_TEXT}]),
    qwen3_5_moe("plain", without=[
        {"text_config": {**QWEN3_5_TEXT, **QWEN3_5_EXPERTS, "num_experts_per_tok": 1}},
    ]),
    qwen3_5_moe("full", style="full", text={"rms_norm_eps": 1e-2}),
]
