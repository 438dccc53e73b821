"""Codes FD720 to FD739: rules inside vLLM."""

from __future__ import annotations

from fusiondsl.diagnostics.codes.info import CodeInfo

CODES: dict[str, CodeInfo] = {
    "FD720": CodeInfo(
        "a setting cannot be read",
        "One of the variables `FUSIONDSL_*`, or an argument of the same name, has a value that it "
        "cannot have. vLLM does not start, because it would run with other rules than meant.",
    ),
    "FD721": CodeInfo(
        "a required rule did not fire",
        "`FUSIONDSL_REQUIRE` names rules that must fire in at least one graph of the model, and "
        "`FUSIONDSL_STRICT=1` requires all that the target allows. The notes say why one did not.",
    ),
    "FD722": CodeInfo(
        "ranks would fuse differently",
        "Every rank compiles its own graphs, and with an all-reduce inside a fused op all of them "
        "must do the same. Before the model is loaded they compare a digest of rules, settings, "
        "facts and versions. The message names ranks that differ from the first, or one with "
        "another device than its driver said when the configuration was made.",
    ),
    "FD723": CodeInfo(
        "a pass slot is taken",
        "The slot of `inductor_compile_config` that the rules go into holds a pass without a "
        "`uuid`. Behind it nothing could be cached safely. Give that pass a `uuid`, or use the "
        "other place with `FUSIONDSL_PLACE`.",
    ),
    "FD724": CodeInfo(
        "the configuration of a model cannot be read",
        "`fusiondsl plan --model` takes a directory with a `config.json`, or such a file.",
    ),
    "FD725": CodeInfo(
        "another vLLM than the rules know",
        "Rules go into the configuration when it is complete, and ranks compare their rules when "
        "workers start. This vLLM does either somewhere else.",
    ),
    "FD726": CodeInfo(
        "no engine can serve this model so",
        "A value in the configuration of a model is not what vLLM takes, or does not go with what "
        "`fusiondsl plan` was told of the engine: attention heads are split over the ranks of a "
        "tensor-parallel group. vLLM would not start.",
    ),
}
