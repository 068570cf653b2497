"""Models of Hugging Face transformers and of fla for comparisons: small ones with awkward shapes, and how to run them on a CPU."""
import contextlib
import copy
import json
import math
import sys

# ---- the models: name, config class, its settings, how to save

ODD = {"vocab_size": 71, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
       "max_position_embeddings": 2048, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
MLP = {"intermediate_size": 37}
FOUR = {"num_hidden_layers": 4}
EPS = {"rms_norm_eps": 1e-4}  # the norm of an almost empty answer magnifies rounding by up to 1 / sqrt(eps)
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 13, "shared_expert_intermediate_size": 19}
LINEAR = {"linear_conv_kernel_dim": 3, "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_num_key_heads": 2,
          "linear_num_value_heads": 6}
FLA = {"vocab_size": 71, "hidden_size": 24, "num_hidden_layers": 3, "intermediate_size": 37}
VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 24, "num_position_embeddings": 4,
          "patch_size": 2}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e2, "factor": 8.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 5e3, "factor": 4.0, "original_max_position_embeddings": 512}

MODELS = [
    ("llama", "LlamaConfig", ODD | MLP | {"head_dim": 10, "tie_word_embeddings": True}, {}),
    ("llama-bf16-shards", "LlamaConfig", ODD | MLP, {"max_shard_size": "12KB", "dtype": "bfloat16"}),
    ("llama-bias-llama3", "LlamaConfig", ODD | MLP | {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}, {}),
    ("mistral", "MistralConfig", ODD | MLP | {"sliding_window": 5, "head_dim": 8}, {"dtype": "float16"}),
    ("qwen2-yarn", "Qwen2Config", ODD | MLP | {"rope_parameters": YARN, "tie_word_embeddings": True}, {}),
    ("qwen3", "Qwen3Config", ODD | MLP | {"head_dim": 14, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1,
                                          "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}}, {}),
    ("olmo2", "Olmo2Config", ODD | MLP | {"attention_bias": True}, {"dtype": "bfloat16"}),
    ("olmo3-yarn", "Olmo3Config", ODD | MLP | FOUR | {"sliding_window": 7, "rope_parameters": {
        "full_attention": YARN | {"attention_factor": 1.25, "beta_fast": 16.0, "beta_slow": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}}}, {}),
    ("mamba2", "Mamba2Config", {"vocab_size": 71, "hidden_size": 24, "num_hidden_layers": 3, "num_heads": 6, "head_dim": 8,
                                "state_size": 11, "n_groups": 1, "tie_word_embeddings": True}, {}),
    ("mamba2-biases", "Mamba2Config", {"vocab_size": 71, "hidden_size": 24, "num_hidden_layers": 3, "num_heads": 6, "head_dim": 8,
                                       "state_size": 7, "n_groups": 1, "conv_kernel": 3, "use_bias": True, "use_conv_bias": False},
     {"dtype": "bfloat16"}),
    ("qwen3_next", "Qwen3NextConfig", ODD | FOUR | MLP | EXPERTS | LINEAR | EPS | {
        "head_dim": 16, "mlp_only_layers": [1], "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                                                    "partial_rotary_factor": 0.25}}, {"dtype": "bfloat16"}),
    ("qwen3_next-sparse", "Qwen3NextConfig", ODD | MLP | EXPERTS | LINEAR | EPS | {
        "head_dim": 8, "decoder_sparse_step": 2, "layer_types": ["full_attention", "linear_attention", "linear_attention"],
        "tie_word_embeddings": True}, {}),
    ("qwen3_5", "Qwen3_5TextConfig", ODD | FOUR | MLP | LINEAR | EPS | {"head_dim": 16, "tie_word_embeddings": True}, {"dtype": "float16"}),
    ("qwen3_5-vision", "Qwen3_5Config", {
        "text_config": ODD | MLP | LINEAR | EPS | {"head_dim": 16, "layer_types": ["linear_attention", "full_attention",
                                                                                   "linear_attention"]},
        "vision_config": VISION},
     {"class": "Qwen3_5ForConditionalGeneration", "loads_as": "Qwen3_5ForCausalLM", "dtype": "bfloat16"}),
    ("qwen3_5_moe", "Qwen3_5MoeTextConfig", ODD | FOUR | EXPERTS | LINEAR | EPS | {"head_dim": 16}, {"dtype": "bfloat16"}),
    ("olmo_hybrid", "OlmoHybridConfig", ODD | FOUR | MLP | EPS | {
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 10,
        "linear_conv_kernel_dim": 3}, {}),
    ("olmo_hybrid-nope", "OlmoHybridConfig", ODD | FOUR | MLP | EPS | {
        "rope_parameters": {"rope_type": "default", "rope_theta": None}, "linear_allow_neg_eigval": False}, {"dtype": "bfloat16"}),
    ("fla-transformer", "TransformerConfig", FLA | {"num_heads": 4, "num_kv_heads": 2, "qkv_bias": True, "qk_norm": True,
                                                    "window_size": 6}, {}),
    ("fla-delta_net", "DeltaNetConfig", FLA | {
        "num_heads": 2, "expand_k": 0.75, "qk_norm": "sum", "qk_activation": "elu", "use_gate": True,
        "attn": [{"layers": [1], "num_heads": 4, "num_kv_heads": 2, "qkv_bias": True, "window_size": 5, "rope_theta": 3e3}]}, {}),
    ("fla-gated_deltanet", "GatedDeltaNetConfig", FLA | {
        "num_hidden_layers": 4, "head_dim": 6, "num_heads": 2, "num_v_heads": 4, "expand_v": 1.5, "allow_neg_eigval": True,
        "norm_eps": 1e-4, "attn": [{"layers": [1], "num_heads": 4, "window_size": 5},
                                   {"layers": [3], "num_heads": 3, "num_kv_heads": 1, "qkv_bias": True}]}, {"dtype": "bfloat16"}),
    ("fla-mamba2", "Mamba2Config", {"vocab_size": 71, "hidden_size": 24, "num_hidden_layers": 3, "head_dim": 8, "state_size": 7,
                                    "n_groups": 2, "use_conv_bias": False}, {}),
]


def fla_last(models):
    """fla makes itself known to transformers, Mamba2 included, so its models come after all others."""
    return sorted(models, key=lambda m: m[0].startswith("fla-"))


def sample(torch, length, seed, vocab):
    return torch.randint(vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def shake(torch, tensors, seed):
    """Every number moves, so that a part in the wrong place shows. Time steps become longer, so that what is remembered counts."""
    g = torch.Generator().manual_seed(seed)
    longer = {name: 0.4 * t if name.endswith("dt_bias") else t for name, t in tensors.items()}
    return {name: t + (0.1 if t.dim() > 1 else 0.3) * torch.randn(t.shape, generator=g) for name, t in sorted(longer.items())}


def save_model(torch, folder, case, seed=2):
    """A random model of the class, every number shaken, saved by the class. Returns a function from a batch of sequences to
    pairs of float64 and float32 logits, the model that was loaded again (None for fla), and the class's name."""
    import transformers

    name, config_class, settings, saving = case
    torch.manual_seed(0)
    of_fla = name.startswith("fla-")
    config = getattr(import_fla() if of_fla else transformers, config_class)(**settings)
    if "class" in saving:
        model = getattr(transformers, saving["class"])(config)
    elif of_fla:
        model = transformers.AutoModelForCausalLM.from_config(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tied = model.config.get_text_config().tie_word_embeddings
    state = model.state_dict()
    model.load_state_dict(shake(torch, {k: v for k, v in state.items() if not (tied and k == "lm_head.weight")}, seed), strict=not tied)
    model = model.float().eval().to(getattr(torch, saving.get("dtype", "float32")))
    model.save_pretrained(folder, **{k: v for k, v in saving.items() if k == "max_shard_size"})
    class_name = type(model).__name__
    if of_fla:
        return fla_logits(torch, folder, config), None, class_name
    # Loaded again: in bf16 the table of rotations was rounded, too.
    class_name = saving.get("loads_as", class_name)
    model = load_transformers(torch, folder, class_name)
    return transformers_logits(torch, model), model, class_name


# ---- transformers


def plain_transformers():
    """transformers would use fla's kernels, which need a GPU: the models are imported while fla cannot be."""
    import importlib

    sys.modules["fla"] = None
    for name in ("mamba2", "qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid"):
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    del sys.modules["fla"]


def load_transformers(torch, folder, wanted):
    import transformers

    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    bad = {k: v for k, v in info.items() if v}
    if type(model).__name__ != wanted or bad:
        raise RuntimeError(f"transformers loads it as {type(model).__name__} with {bad}")
    return model.eval()


@contextlib.contextmanager
def float64_only(torch):
    """Inside, code that asks for float32 gets float64."""
    narrow, cast = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = narrow, cast


def transformers_logits(torch, model):
    wide = copy.deepcopy(model).double()

    def run(batch):
        longest = max(map(len, batch))
        ids = torch.tensor([b + [0] * (longest - len(b)) for b in batch])
        mask = torch.tensor([[1] * len(b) + [0] * (longest - len(b)) for b in batch])
        with torch.no_grad():
            narrow_out = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
            with float64_only(torch):
                wide_out = wide(input_ids=ids, attention_mask=mask, use_cache=False).logits
        assert narrow_out.dtype == torch.float32 and wide_out.dtype == torch.float64
        return [(w[:len(b)], n[:len(b)]) for w, n, b in zip(wide_out, narrow_out, batch)]

    return run


# ---- fla


def import_fla():
    import fla.layers.attn
    import fla.models

    if fla.layers.attn.flash_attn_func is None:
        fla.layers.attn.flash_attn_func = import_fla  # asked for when a layer is made, called on a GPU only
    return fla.models


def load_fla(torch, folder, wanted):
    """Names and shapes, by fla's own classes."""
    from safetensors.torch import load_file

    import_fla()
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config)
    if type(model).__name__ != wanted or json.loads((folder / "config.json").read_text())["architectures"] != [wanted]:
        raise RuntimeError(f"fla makes a {type(model).__name__} of it")
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    return config


def fla_logits(torch, folder, config):
    """fla's models written plainly: one sequence at a time, token by token, float64."""
    import torch.nn.functional as F
    from safetensors.torch import load_file

    w = {k: v.double() for path in folder.glob("*.safetensors") for k, v in load_file(path).items()}
    eps = config.norm_eps
    gated = config.model_type == "gated_deltanet"
    attention = {}
    specs = getattr(config, "attn", None) or []
    for spec in [specs] if isinstance(specs, dict) else specs:
        attention |= {layer: spec for layer in spec["layers"]}

    if config.model_type == "transformer":
        whole = {k: getattr(config, k) for k in ("num_heads", "num_kv_heads", "qkv_bias", "qk_norm", "window_size", "rope_theta")}
        attention = {layer: whole for layer in range(config.num_hidden_layers)}

    def norm(x, name, eps=eps):
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def conv(x, taps):
        padded = F.pad(x.T, (taps.shape[-1] - 1, 0))
        return F.conv1d(padded[None], taps, groups=len(taps))[0].T

    def softmax_attention(x, p, spec):
        H = spec["num_heads"]
        Hkv = spec.get("num_kv_heads") or H
        q, k, v = (linear(x, f"{p}{n}_proj") for n in "qkv")
        q, k, v = q.view(len(x), H, -1), k.view(len(x), Hkv, -1), v.view(len(x), Hkv, -1)
        if spec.get("qk_norm"):
            q, k = norm(q, p + "q_norm", 1e-5), norm(k, p + "k_norm", 1e-5)
        d = q.shape[-1]
        angle = torch.arange(len(x)).double()[:, None] * spec.get("rope_theta", 1e4) ** -(torch.arange(0, d, 2).double() / d)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]

        def turn(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        q, k = turn(q), turn(k).repeat_interleave(H // Hkv, 1)
        i = torch.arange(len(x))
        hidden = i[:, None] < i[None]
        if spec.get("window_size"):
            hidden |= i[:, None] - i[None] >= spec["window_size"]
        s = torch.einsum("ihd,jhd->hij", q, k) * d**-0.5
        o = torch.einsum("hij,jhd->ihd", s.masked_fill(hidden, -math.inf).softmax(-1), v.repeat_interleave(H // Hkv, 1))
        return o.flatten(1) @ w[p + "o_proj.weight"].T

    def delta_rule(x, p):
        activation = "silu" if gated else config.qk_activation
        feature = {"silu": F.silu, "relu": F.relu, "elu": lambda t: F.elu(t) + 1, "identity": lambda t: t}
        parts = {}
        for n in "qkv":
            t = x @ w[f"{p}{n}_proj.weight"].T
            if config.use_short_conv:
                t = conv(t, w[f"{p}{n}_conv1d.weight"])
            parts[n] = feature["silu" if n == "v" else activation](t)
        Hk = config.num_heads
        Hv = (config.num_v_heads or Hk) if gated else Hk
        q, k = (parts[n].view(len(x), Hk, -1) for n in "qk")
        if not gated and config.qk_norm == "sum":
            q, k = (F.normalize(t, p=1, dim=-1, eps=1e-6) for t in (q, k))
        else:
            q, k = (t * (t.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for t in (q, k))
        q, k = (t.repeat_interleave(Hv // Hk, 1) for t in (q, k))
        v = parts["v"].view(len(x), Hv, -1)
        beta = (x @ w[p + "b_proj.weight"].T).sigmoid() * (2 if config.allow_neg_eigval else 1)
        g = torch.zeros(len(x), Hv, dtype=torch.float64)
        if gated:
            g = -w[p + "A_log"].exp() * F.softplus(x @ w[p + "a_proj.weight"].T + w[p + "dt_bias"])
        S, out = torch.zeros(Hv, k.shape[-1], v.shape[-1], dtype=torch.float64), []
        for t in range(len(x)):
            S = S * g[t].exp()[:, None, None]
            u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", S, k[t]))
            S = S + k[t][:, :, None] * u[:, None]
            out.append(torch.einsum("hkv,hk->hv", S, q[t]) * k.shape[-1] ** -0.5)
        o = norm(torch.stack(out), p + "o_norm")
        if config.use_gate:
            gate = (x @ w[p + "g_proj.weight"].T).view(o.shape)
            o = o * (gate.sigmoid() if gated and config.output_gate_activation == "sigmoid" else F.silu(gate))
        return o.flatten(1) @ w[p + "o_proj.weight"].T

    def mamba2(x, p):
        D, N, G = config.expand * config.hidden_size, config.state_size, config.n_groups
        H = D // config.head_dim
        z, xbc, dt = linear(x, p + "in_proj").split([D, D + 2 * G * N, H], -1)
        xbc = F.silu(conv(xbc, w[p + "conv1d.weight"]) + w.get(p + "conv1d.bias", 0))
        u, B, C = xbc.split([D, G * N, G * N], -1)
        u = u.view(len(x), H, -1)
        B, C = (t.view(len(x), G, N).repeat_interleave(H // G, 1) for t in (B, C))
        dt = F.softplus(dt + w[p + "dt_bias"])
        A = -w[p + "A_log"].exp()
        S, out = torch.zeros(H, u.shape[-1], N, dtype=torch.float64), []
        for t in range(len(x)):
            S = S * (A * dt[t]).exp()[:, None, None] + (dt[t][:, None] * u[t])[:, :, None] * B[t][:, None]
            out.append(torch.einsum("hpn,hn->hp", S, C[t]) + w[p + "D"][:, None] * u[t])
        y = (torch.stack(out).flatten(1) * F.silu(z)).view(len(x), G, -1)
        y = (y * (y.square().mean(-1, keepdim=True) + eps).rsqrt()).flatten(1) * w[p + "norm.weight"]
        return linear(y, p + "out_proj")

    def one_mamba2(ids):
        x = w["backbone.embeddings.weight"][ids]
        for i in range(config.num_hidden_layers):
            p = f"backbone.layers.{i}."
            x = x + mamba2(norm(x, p + "norm"), p + "mixer.")
        head = w["backbone.embeddings.weight" if config.tie_word_embeddings else "lm_head.weight"]
        return norm(x, "backbone.norm_f") @ head.T

    def one(ids):
        if config.model_type == "mamba2":
            return one_mamba2(ids)
        x = w["model.embeddings.weight"][ids]
        for i in range(config.num_hidden_layers):
            p = f"model.layers.{i}."
            h = norm(x, p + "attn_norm")
            x = x + (softmax_attention(h, p + "attn.", attention[i]) if i in attention else delta_rule(h, p + "attn."))
            h = norm(x, p + "mlp_norm")
            inner = F.silu(h @ w[p + "mlp.gate_proj.weight"].T) * (h @ w[p + "mlp.up_proj.weight"].T)
            x = x + inner @ w[p + "mlp.down_proj.weight"].T
        head = w["model.embeddings.weight" if config.tie_word_embeddings else "lm_head.weight"]
        return norm(x, "model.norm") @ head.T

    return lambda batch: [(one(ids), None) for ids in batch]
