"""What proofs have to say about a program: rules and forms that are not what they claim."""

from __future__ import annotations

from collections.abc import Iterator

from fusiondsl.diagnostics.diagnostic import Diagnostics, Label
from fusiondsl.ir.program import Branch, Call, Program, Rule, Step, Unrounded
from fusiondsl.proof.prove import Prover
from fusiondsl.proof.unread import above
from fusiondsl.proof.verdict import ORDER, Cause, Declared, Level, Verdict, listed


def check_proofs(program: Program, diagnostics: Diagnostics) -> None:
    """Holds every rule against its proof, and every form that a rule matches against its op."""
    prover = Prover(program)
    for rule in program.rules:
        _Checked(prover, rule, diagnostics).run()


class _Checked:
    """One rule."""

    def __init__(self, prover: Prover, rule: Rule, diagnostics: Diagnostics) -> None:
        self.prover = prover
        self.rule = rule
        self.diagnostics = diagnostics
        self.verdict: Verdict = prover.rule(rule)

    def run(self) -> None:
        because = self.verdict.because
        trusted = any(d.kind == "unproved" for d in self.rule.allow)
        if because is not None and because.refuted and not trusted:
            self._refuted(because)
        self._forms()
        self._declared()
        self._computed()
        if self.verdict.level is not Level.UNPROVED:
            self._unneeded()

    def _refuted(self, cause: Cause) -> None:
        self.diagnostics.error(
            "FD318",
            f"`{self.rule.name}` does not compute what it replaces: {cause.message}",
            self.rule.span,
            labels=_labels(cause),
            help="where both are the same for a reason that is not in their meanings, "
            "`allow { unproved }` says so",
        )

    def _forms(self) -> None:
        for decl, form, verdict in self.prover.forms(self.rule):
            missing = set(verdict.differences) - {d.kind for d in form.differs}
            because = verdict.because
            if because is not None and because.refuted:
                message = f"is not what the op means: {because.message}"
                labels = _labels(because)
                help = None
            elif missing:
                named = " and ".join(f"`{kind}`" for kind in listed(missing))
                message = f"differs by {named}, which it does not declare"
                labels = []
                help = f"add `differs {{ {'; '.join(listed(missing))} }}` to the form"
            else:
                continue
            self.diagnostics.error(
                "FD320",
                f"the form `{form.name}` of `{decl.name}` {message}",
                form.span,
                labels=labels,
                help=help,
            )

    # --- differences ---------------------------------------------------------------------------

    def _declared(self) -> None:
        """A target that computes something slightly else needs the rule's consent."""
        allowed = {d.kind for d in self.rule.allow}
        for item in self._named():
            if item.kind not in allowed:
                self.diagnostics.error(
                    "FD315",
                    f"{item.owner} differs by `{item.kind}`, which the rule does not allow",
                    item.span,
                    labels=[Label(item.owner_span, "declared here")] if item.owner_span else [],
                    help=f"add `{item.kind}` to `allow`, or choose another target",
                )

    def _named(self) -> list[Declared]:
        targets = [item for item in self.verdict.declared if item.span is not None]
        if self.verdict.level is Level.UNPROVED:
            targets.extend(self._implied())
        return targets

    def _implied(self) -> Iterator[Declared]:
        """`~x` and `round?` in a meaning move a rounding, whatever the source is."""
        for call in self.rule.replace:
            decl = self.prover.program.ops.get(call.op)
            if decl is not None and any(_skips_rounding(step) for step in decl.means or ()):
                yield Declared("round", f"`{decl.name}`", call.span, decl.span)

    def _computed(self) -> None:
        """A difference that a proof needed."""
        reported: set[str] = set()
        for output in self.verdict.outputs:
            for kind in output.differences:
                if kind in reported or self._is_allowed(kind, output.name):
                    continue
                reported.add(kind)
                cause = self.prover.first(self.rule, kind, output.name)
                self.diagnostics.error(
                    "FD315",
                    f"`{output.name}` differs by `{kind}`, which the rule does not allow",
                    self.rule.span,
                    labels=_labels(cause) if cause is not None else [],
                    help=f"add `{kind}` to `allow`, or choose another target",
                )

    def _is_allowed(self, kind: str, output: str) -> bool:
        values = [d.value for d in self.rule.allow if d.kind == kind]
        return None in values or bool(above(self.rule, output).intersection(values))

    def _unneeded(self) -> None:
        for kind in listed({d.kind for d in self.rule.allow} & set(ORDER)):
            if kind not in self.verdict.differences:
                self.diagnostics.warning(
                    "FD319",
                    f"`{self.rule.name}` allows `{kind}`, which does not occur",
                    self.rule.span,
                    help=f"take `{kind}` out of `allow`: it would hide a difference that comes "
                    "later",
                )


def _labels(cause: Cause) -> list[Label]:
    labels: list[Label] = []
    if cause.source_span is not None:
        labels.append(Label(cause.source_span, f"the source has `{cause.source}`"))
    if cause.target_span is not None:
        labels.append(Label(cause.target_span, f"the target has `{cause.target}`"))
    return labels


def _skips_rounding(step: Step) -> bool:
    if isinstance(step, Branch):
        return any(map(_skips_rounding, (*step.then, *step.otherwise)))
    return _moves_rounding(step)


def _moves_rounding(step: Call) -> bool:
    return step.op == "prim.maybe_round" or any(isinstance(a, Unrounded) for a in step.args)
