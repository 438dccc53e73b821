"""Where vLLM's passes and the rules deliberately do not do the same, and what both leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.vllm.cases import ARCHS, CDNA, RDNA


@dataclass(frozen=True)
class Difference:
    """Cases, by patterns of their names, and why their results are not the same."""

    cases: tuple[str, ...]
    theirs: str
    """`rewrites`, `leaves`, or the exception that leaves vLLM's pass and ends the compilation."""
    ours: str
    """`rewrites` or `leaves`."""
    why: str
    archs: tuple[str, ...] = ARCHS

    def covers(self, case: str, arch: str) -> bool:
        return arch in self.archs and any(fnmatchcase(case, name) for name in self.cases)


DIFFERENCES = (
    Difference(
        ("*norm*-eps 0.1", "allreduce_*gemma-*-eps 0.1", "*rope*attention-*-eps 0.1"),
        "leaves",
        "rewrites",
        "vLLM registers a pattern for each epsilon it knows, 1e-5 and 1e-6; a rule binds any",
    ),
    Difference(
        (
            "*norm_group_quant-vllm-*",
            "norm_two_group_quants-vllm-*",
            "silu_mul_quant-vllm-*",
            "gated_norm_quant-vllm-*",
        ),
        "leaves",
        "rewrites",
        "on this chip vLLM only has the pattern over AITER's quantisation, and here the compiled"
        " op quantises the same groups; a rule sees the op behind either spelling",
        CDNA,
    ),
    Difference(
        (
            "*norm_group_quant-aiter-eps*",
            "norm_two_group_quants-aiter-eps*",
            "silu_mul_quant-aiter-eps*",
            "gated_norm_quant-aiter-eps*",
        ),
        "leaves",
        "rewrites",
        "on this chip vLLM only has the pattern over the compiled op, as above the other way round",
        RDNA,
    ),
    Difference(
        (
            "*norm_group_quant-native-eps*",
            "norm_two_group_quants-native-eps*",
            "silu_mul_quant-native-eps*",
        ),
        "leaves",
        "rewrites",
        "vLLM traces plain group quantisation on less than 128 columns, so that its pattern holds"
        " a pad and never matches; ours is recognised by what it computes",
    ),
    Difference(
        ("gated_norm_quant-*-f16",),
        "leaves",
        "rewrites",
        "vLLM's pattern casts to the dtype of the model, bf16, instead of the input's",
    ),
    Difference(
        ("gated_norm_quant-*-f32 weight",),
        "leaves",
        "rewrites",
        "vLLM's pattern casts the weight to f32, and this weight is; a rule takes any float dtype,"
        " as the kernel does",
    ),
    Difference(
        ("allreduce_gemma-*-f32", "allreduce_add_gemma-*-f32"),
        "rewrites",
        "rewrites",
        "with an f32 weight vLLM's Gemma pattern has no cast to match, so the 1 is added outside"
        " the kernel; our rule leaves it to the kernel",
    ),
    Difference(
        ("allreduce_*norm_quant-*-f32", "allreduce_add_norm_quant_indexer-*-f32"),
        "rewrites",
        "rewrites",
        "AITER's kernel that quantises takes bf16 and f16 only; vLLM hands it f32, we fuse without"
        " quantisation, and that kernel takes f32",
    ),
    Difference(
        (
            "*norm_group_quant-*-f32",
            "norm_two_group_quants-*-f32",
            "*norm_token_quant-*-f32",
            "silu_mul_quant-*-f32",
            "add_norm_pad-*-f32",
            "mla_*-f32",
            "*rope*attention-*-f32",
        ),
        "rewrites",
        "leaves",
        "the target is declared for bf16 and f16; vLLM does not look at the dtype",
    ),
    Difference(
        ("allreduce_*-f32 weight", "norm_*-f32 weight", "add_norm_*-f32 weight"),
        "rewrites",
        "leaves",
        "AITER's kernels read the weight as the input's dtype: vLLM hands them an f32 weight or"
        " rounds it, which the norm in the graph does not do",
    ),
    Difference(
        (
            "allreduce_add_norm-*-x as residual",
            "allreduce_add_gemma-*-x as residual",
            "allreduce_add_norm_quant_indexer-*-x as residual",
            "add_*-x as residual",
        ),
        "rewrites",
        "leaves",
        "two inputs of a rule never bind one value unless the rule says so",
    ),
    Difference(
        ("allreduce_add_norm_quant-*-x as residual",),
        "rewrites",
        "rewrites",
        "as above: the all-reduce stays, and norm and quantisation behind it are fused",
    ),
    Difference(
        ("allreduce_norm_quant-*-reduced read by another",),
        "rewrites",
        "rewrites",
        "vLLM has no pattern that quantises and returns the sum too, so it fuses without"
        " quantisation; AITER's kernel returns it",
    ),
    Difference(
        ("norm_group_quant-*-normed read by another",),
        "rewrites",
        "leaves",
        "vLLM's pattern for two quantisations counts two users of the norm and takes the one"
        " quantisation for both, so the norm is computed twice; a rule does not add work",
    ),
    Difference(
        (
            "add_norm_pad-*-normed read by another",
            "add_norm_pad-*-router dead",
            "add_norm_pad-*-1000 columns",
        ),
        "leaves",
        "rewrites",
        "vLLM's pattern is one padded norm of 2880 columns with one router beside it; a rule takes"
        " any width and any readers, or none",
    ),
    Difference(
        (
            "mla_norms*-*-query copied",
            "mla_norms*-*-query read by another",
            "mla_norms*-*-rest read by another",
        ),
        "leaves",
        "rewrites",
        "vLLM's pattern contains the slices; to a rule they are inputs that others may read too",
    ),
    Difference(
        (
            "mla_norm_then_*-query copied",
            "mla_norm_then_*-query read by another",
            "mla_norm_then_*-rest read by another",
        ),
        "rewrites",
        "rewrites",
        "as above: vLLM fuses norm and quantisation, and leaves the other norm alone",
    ),
    Difference(
        ("mla_norms*-rotary dead",),
        "leaves",
        "rewrites",
        "vLLM's pattern contains the part that nobody reads, and the graph does not",
    ),
    Difference(
        ("mla_norm_then_*-rotary dead",),
        "rewrites",
        "rewrites",
        "as above: vLLM fuses norm and quantisation, and leaves the other norm alone",
    ),
    Difference(
        ("allreduce_*norm_quant*-520 columns",),
        "rewrites",
        "rewrites",
        "520 columns are no whole number of groups: the fused op of vLLM has 4 scales a row where"
        " the graph has 5; we fuse without quantisation",
    ),
    Difference(
        ("allreduce_norm-*-256 columns", "allreduce_add_norm-*-256 columns"),
        "rewrites",
        "leaves",
        "for more than 80 tokens vLLM's wrapper takes two stages, which end in an error for rows of"
        " fewer than 512 columns; up to 80 the rules fuse them too",
    ),
    Difference(
        ("*norm_group_quant-*-500 columns",),
        "rewrites",
        "leaves",
        "500 columns are no whole number of groups, and AITER's kernel takes no other",
    ),
    Difference(
        ("*norm_token_quant-*-16384 columns",),
        "rewrites",
        "leaves",
        "rows of more than 8192 columns take another kernel of AITER, with other results for a row"
        " of zeros",
    ),
    Difference(
        ("*norm*_quant-*-no weight",),
        "rewrites",
        "leaves",
        "a norm without weight binds vLLM's pattern, and None goes to a kernel that reads it",
    ),
    Difference(
        ("allreduce_*norm-*-no weight",),
        "AttributeError",
        "leaves",
        "the norm without weight binds vLLM's pattern, whose replacement casts the weight",
    ),
    Difference(
        ("*norm_token_quant-*-three dimensions",),
        "rewrites",
        "rewrites",
        "vLLM's fused op sizes the scales by the first dimension, so they lose one; ours views the"
        " input as rows",
    ),
    Difference(
        ("norm_two_group_quants-*-viewed as rows",),
        "ValueError",
        "rewrites",
        "vLLM's pattern drops the view and its fused op unpacks two dimensions; ours views the"
        " norm's input as rows",
    ),
    Difference(
        ("*norm_group_quant-*-viewed as rows", "*norm_token_quant-*-viewed as rows"),
        "leaves",
        "rewrites",
        "vLLM has a pattern with a view for two group quantisations only; a rule looks through"
        " views that keep rows",
    ),
    Difference(
        ("add_norm_token_quant-*-two sizes",),
        "leaves",
        "rewrites",
        "two placeholders for one size are two values to vLLM's pattern; a rule compares sizes",
    ),
    Difference(
        ("add_norm_*_quant-*-residual dead", "add_norm_*_quant-*-scale dead"),
        "leaves",
        "rewrites",
        "vLLM's pattern wants every result to be read; an output of a rule may be dead",
    ),
    Difference(
        ("allreduce_add_norm_quant-*-residual dead", "allreduce_add_norm_quant-*-scale dead"),
        "rewrites",
        "rewrites",
        "as above: vLLM falls back to its pattern without quantisation",
    ),
    Difference(
        ("rope_attention-*-query doubled", "mrope_attention-*-query doubled"),
        "leaves",
        "rewrites",
        "vLLM's pattern ends with the turned query as heads; to a rule its rows are a value that"
        " anybody may read",
    ),
    Difference(
        ("rope_attention-*-key read by another", "rope_quant_attention-*-key read by another"),
        "rewrites",
        "leaves",
        "AITER's kernel leaves out the keys of tokens without a slot; only the layer's attention is"
        " known not to read them, and vLLM lets anybody",
    ),
    Difference(
        ("mrope_*attention-*-in a row",),
        "leaves",
        "rewrites",
        "vLLM has a pattern for the sections in the model's configuration; a rule binds any",
    ),
    Difference(
        ("*rope*attention-*-other heads",),
        "rewrites",
        "leaves",
        "vLLM's pattern takes any numbers of heads and writes those of the first layer; the rule"
        " asks whether the layer has the heads it sees",
    ),
)

LEFT_ALONE: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    # Something else is computed in between.
    (
        (
            "allreduce_norm-*-reduced doubled",
            "allreduce_add_norm-*-reduced doubled",
            "allreduce_*gemma-*-reduced doubled",
            "allreduce_add_norm_quant_indexer-*-reduced doubled",
            "*-normed doubled",
            "*-activated doubled",
            "mla_norms*-query doubled",
            "mla_norms*-latent doubled",
            "*rope*attention-*-key doubled",
            "*-viewed as halves",
            "*-first columns",
        ),
        ARCHS,
    ),
    # A value that the fused op does not return is read.
    (
        (
            "allreduce_add_norm-*-reduced read by another",
            "allreduce_add_gemma-*-reduced read by another",
            "allreduce_add_norm_quant_indexer-*-reduced read by another",
            "add_norm_*_quant-*-normed read by another",
            "norm_t*-normed read by another",
            "gated_*-normed read by another",
            "silu_*-activated read by another",
            "mrope_*attention-*-key read by another",
        ),
        ARCHS,
    ),
    # No kernel for these dtypes, for groups of this width, or for another group of ranks.
    (
        (
            "gated_norm_quant-*-f32",
            "*norm_group_quant-*-groups of 64",
            "gated_*-groups of 64",
            "silu_*-groups of 64",
            "allreduce_norm-*-another group",
            "allreduce_add_norm-*-another group",
            "allreduce_*gemma-*-another group",
            "allreduce_add_norm_quant_indexer-*-another group",
        ),
        ARCHS,
    ),
    # A HIP kernel, which this chip does not have.
    (("*norm_token_quant-*-eps*",), RDNA),
)
"""Cases in which neither side finds anything, and on which chips."""


def differences(case: str, arch: str) -> Iterator[Difference]:
    return (difference for difference in DIFFERENCES if difference.covers(case, arch))


def left_alone(case: str, arch: str) -> bool:
    return any(
        arch in archs and any(fnmatchcase(case, name) for name in names)
        for names, archs in LEFT_ALONE
    )
