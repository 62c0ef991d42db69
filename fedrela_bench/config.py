"""TrialConfig: everything that decides a number and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    ValidationError,
    model_validator,
)

from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import faults_of
from fedrela_bench.nested import Json, set_dotted
from fedrela_bench.neutral import Neutral, without_neutral
from fedrela_bench.values import ColumnName, Columns, Real, Whole, as_clients, as_factor, as_ids, as_start, as_tau

FREE_FIELDS = ("federation.options.", "relabel.options.", "relabel.schedule_options.")
"""Prefixes of fields that whoever they belong to names and checks."""


class Section(BaseModel):
    """A frozen group of fields; unknown names are faults."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class DataConfig(Section):
    """Which images, how they are thinned, and how they are dealt to clients (docs/data.md)."""

    source: str = "digits"
    """digits, fashion_mnist, cifar10, cifar100, imagenet, folder:PATH, parquet:PATH, npz:PATH or table:PATH."""
    profile: Literal["lt", "step", "balanced", "natural"] = "lt"
    """lt: exponential; step: majority and minority classes; balanced: as the source is, at most `n_max` of each class;
    natural: every row of the source."""
    imbalance_factor: Annotated[Real, BeforeValidator(as_factor), Field(ge=1)] = 100.0
    """Largest over smallest class count (IF of the long-tailed, IR of the step profile)."""
    n_max: Annotated[Whole, Field(ge=1, le=10**12)] | None = None
    """Samples of the largest class; by default the training images per class of a balanced source."""
    minority: Annotated[Literal["even", "last"] | tuple[Whole, ...], BeforeValidator(as_ids)] = "even"
    """Step profile: the first even class ids, the last ids, or a list of ids."""
    minority_fraction: Annotated[Real, Field(gt=0, lt=1)] = 0.3
    """Step profile: share of the classes in the minority; ignored when `minority` is a list."""
    partition: Literal["dirichlet", "iid", "natural"] = "dirichlet"
    """natural: as the source's client column, or its folders of clients, say."""
    alpha: Annotated[Real, Field(gt=0)] = 0.3
    """Concentration of the Dirichlet partition; smaller is more skewed."""
    subset_seed: Annotated[Whole, Field(ge=0, lt=2**32)] = 0
    """Chooses which images are kept; separate from the run's seed, as in the authors' code."""
    partition_seed: Annotated[Whole, Field(ge=0, lt=2**32)] | None = None
    """Deals the images to clients; by default the run's seed."""
    min_client_samples: Annotated[Whole, Field(ge=0, le=10**9)] = 0
    on_small_client: Literal["error", "skip", "pad"] = "error"
    """What happens to clients below `min_client_samples`."""
    augment: Literal["auto", "none", "crop_flip", "resized_crop"] = "auto"
    """resized_crop: a random part of the image, scaled to its size, and flipped or not; see `data.transforms`."""
    normalize: Literal["auto", "none", "imagenet", "cifar10", "cifar100", "own"] = "auto"
    """Statistics for normalisation; `own` measures them on the training images."""
    image_size: Annotated[Whole, Field(ge=4, le=1024)] | None = None
    """imagenet, folder, parquet and npz sources: images are resized to this side length."""
    label_column: ColumnName = None
    """table: the column of classes; by default the one named label, target or class."""
    client_column: ColumnName = None
    """table and parquet: the column of clients; by default the one named client. Never a feature."""
    drop_columns: Columns = ()
    """table: columns that are no features."""
    categorical_columns: Columns = ()
    """table: columns of numbers that stand for categories."""
    impute: Literal["none", "mean"] = "none"
    """table: none: missing values are faults; mean: the mean of the training rows, and no category at all."""
    test_fraction: Annotated[Real, Field(gt=0, lt=1)] = 0.2
    """Share of each class that is set aside to test, where the source has no test split."""
    test_seed: Annotated[Whole, Field(ge=0, lt=2**32)] = 0
    """Chooses those rows; separate from the run's seed, so that every seed is tested on the same ones."""
    balanced_test: StrictBool = False
    """Score on as many test rows of every class, those of smaller classes repeated."""


class FederationConfig(Section):
    """Who takes part and under which base algorithm."""

    algorithm: str = "fedavg"
    options: dict[str, Any] = Field(default_factory=dict)
    """Hyperparameters of the algorithm, such as mu of fedprox; `fedrela-bench algorithms show NAME` lists them."""
    clients: Annotated[
        int, BeforeValidator(as_clients), Field(ge=0, le=1_000_000), PlainSerializer(lambda value: value or "auto")
    ] = 20
    """auto: as many as the data name, with data.partition = natural; held as 0 until the data are there."""
    participation: Annotated[Real, Field(gt=0, le=1)] = 1.0
    """Fraction of the clients that train in a round: max(1, int(participation * clients))."""
    rounds: Annotated[Whole, Field(ge=1, le=1_000_000)] = 50


class TrainingConfig(Section):
    """Local training: SGD with heavy-ball momentum, buffers empty at the start of every round."""

    model: str = "auto"
    """A registered network; auto: the published one for the source, or one that suits the size of the images."""
    norm: Literal["batch", "group"] = "batch"
    """Normalisation layers of the ResNets."""
    local_epochs: Annotated[Whole, Field(ge=1, le=100_000)] = 1
    batch_size: Annotated[Whole, Field(ge=1, le=10_000_000)] = 32
    lr: Annotated[Real, Field(gt=0)] = 0.05
    momentum: Annotated[Real, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[Real, Field(ge=0)] = 1e-5
    shuffle: StrictBool = True
    short_batch: Literal["join", "keep"] = "join"
    """With batch norm, a single left-over sample joins the batch before it, or stays a batch of one."""
    dtype: Literal["float32", "float64"] = "float32"
    amp: Literal["none", "bf16"] = "none"
    """bf16: forward and backward in bfloat16 autocast, parameters stay in `dtype`."""
    tf32: StrictBool = False
    """On a GPU that has it: products of float32 matrices and convolutions round their inputs to TF32."""


AUTHOR_PRESET: Json = {
    "pick": "drawn",
    "std_ddof": 0,
    "sigma_floor": 1e-6,
    "quantile": "order",
    "posterior_bn": "batch",
    "posterior_views": 5,
    "posterior_augment": True,
    "posterior_batch": 8,
    "late_clients": "never",
    "post_relabel_lr_scale": 0.1,
}


FEDRELA, FIXED = "fedrela", "fixed"
"""The relabeler and the schedule of FedReLa as published."""
RELABEL_PLUGS = {"method": "options", "schedule": "schedule_options"}
"""Fields of the relabel section that choose a registered class, and those that hold its options."""
PUBLISHED: Json = {"relabel.method": FEDRELA, "relabel.schedule": FIXED}


class RelabelConfig(Section):
    """FedReLa (Algorithm 1, equations 2-8), every choice as in docs/fidelity.md; tau = 0 is the base algorithm."""

    method: Annotated[str, Neutral(FEDRELA)] = FEDRELA
    """A registered relabeler: fedrela, none, random or loss; `fedrela-bench relabelers list` says what they do."""
    options: Annotated[dict[str, Any], Neutral({})] = Field(default_factory=dict)
    """Of a relabeler other than fedrela, such as match of random; `fedrela-bench relabelers show NAME` lists them."""
    schedule: Annotated[str, Neutral(FIXED)] = FIXED
    """A registered schedule: which rounds relabel, with which budget; fixed is `start`, `period` and `tau` as given."""
    schedule_options: Annotated[dict[str, Any], Neutral({})] = Field(default_factory=dict)
    """Of the schedule, such as first of linear."""
    preset: Literal["paper", "author"] = "paper"
    """Values for the options below that are not given: the paper's reading or the released code's."""
    tau: Annotated[Real, BeforeValidator(as_tau), Field(ge=0, le=1)] = 0.0
    """Relabelling budget: threshold at the (1 - tau)-quantile of every class column; 0 switches relabelling off."""
    start: Annotated[int | float, BeforeValidator(as_start)] = 0.8
    """T: a float up to 1.0 is a fraction of the rounds (1.0: never), an integer a number of completed rounds."""
    period: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    """Relabel again every `period` rounds; 0: once."""
    refresh_from: Literal["original", "current"] = "original"
    pick: Literal["all", "drawn"] = "all"
    std_ddof: Literal[0, 1] = 1
    sigma_floor: Annotated[Real, Field(ge=0)] = 0.0
    quantile: Literal["linear", "order"] = "linear"
    threshold_pool: Literal["all", "exclude_own"] = "all"
    absent_targets: Literal["allow", "forbid"] = "allow"
    score: Literal["zscore", "none", "minmax"] = "zscore"
    """none, minmax: the paper's ablations."""
    constant_threshold: Real | None = None
    posterior_bn: Literal["eval", "batch"] = "eval"
    posterior_views: Annotated[Whole, Field(ge=1, le=10_000)] = 1
    posterior_augment: StrictBool = False
    posterior_batch: Annotated[Whole, Field(ge=1, le=10_000_000)] = 200
    posterior_head: str = "auto"
    """Which logits the posterior comes from, among the algorithm's `posterior_heads`; auto: the first of them."""
    posterior_scale: Annotated[Real, Field(gt=0)] = 1.0
    """Factor on the logits before the softmax."""
    late_clients: Literal["first_participation", "never", "all_at_T"] = "first_participation"
    post_relabel_lr_scale: Annotated[Real, Field(gt=0)] = 1.0
    """Learning-rate factor from T on. With tau = 0 this is the control arm "drop without relabelling"."""
    label_stats: Literal["current", "original"] = "current"
    author_resume: StrictBool = False
    """Repeat round T-1 with empty client state before relabelling, as the released recipe's resume does."""

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("preset") == "author":
            return {**AUTHOR_PRESET, **values}
        return values

    @model_validator(mode="after")
    def _threshold_needs_scores(self) -> Self:
        if self.score == "none" and self.constant_threshold is not None:
            raise ValueError("constant_threshold has no effect with score = none; drop one of the two")
        return self

    def start_round(self, rounds: int) -> int:
        """T as a number of completed rounds: round(fraction * rounds) or the number itself."""
        return self.start if isinstance(self.start, int) else round(self.start * rounds)

    def active(self, rounds: int) -> bool:
        """Whether this section can change a run of that many rounds at all."""
        changes = self.tau > 0 or self.post_relabel_lr_scale != 1.0 or self.author_resume
        return changes and self.start_round(rounds) < rounds


class EvaluationConfig(Section):
    """What is measured, on which images."""

    eval_every: Annotated[Whole, Field(ge=1)] = 1
    selection: Literal["none", "test_slice", "oracle"] = "none"
    """none: the whole test set is reported and nothing is selected. test_slice: a fixed class-balanced half of the test
    set selects (val/*), the other half is reported (test/*). oracle: the reported test set also selects; marked."""
    shot_split: Literal["train_counts", "fedloge_trunc", "fedloge_trunc_capped"] = "train_counts"
    early_stop_patience: Annotated[Whole, Field(ge=0)] = 0
    """Stop after that many evaluations without a better val/overall (test/overall under `oracle`); 0: never."""

    @model_validator(mode="after")
    def _patience_needs_selection(self) -> Self:
        if self.early_stop_patience and self.selection == "none":
            raise ValueError(
                "early_stop_patience needs images to select on; set evaluation.selection to test_slice (or oracle)"
            )
        return self


LEAST_NOISE = 1e-6
"""Of epsilon nothing is left below."""


class PrivacyConfig(Section):
    """Differential privacy of what clients send: clipping and Gaussian noise; off unless `clip` is given."""

    clip: Annotated[Annotated[Real, Field(gt=0)] | None, Neutral(None)] = None
    """C, the largest 2-norm of what a sample adds to a step (level sample) or a client to a round (level client)."""
    noise_multiplier: Annotated[Real, Field(ge=0), Neutral(0.0)] = 0.0
    """Standard deviation of the noise on the sum, in units of C; 0 clips only and guarantees nothing."""
    level: Annotated[Literal["sample", "client"], Neutral("sample")] = "sample"
    """sample: DP-SGD in every client; client: clipped updates, noise added by a trusted server."""
    sampling: Annotated[Literal["poisson", "shuffle"], Neutral("poisson")] = "poisson"
    """Level sample: each sample enters a step by chance, or epochs are cut into batches as without privacy."""
    delta: Annotated[Real, Field(gt=0, lt=1), Neutral(1e-5)] = 1e-5
    """At which epsilon is reported."""

    @model_validator(mode="after")
    def _needs_clip(self) -> Self:
        fields = type(self).model_fields
        idle = sorted(name for name in fields if getattr(self, name) != fields[name].default)
        if self.clip is None and idle:
            raise ValueError(f"{', '.join(idle)} without clip: nothing is private; give privacy.clip, too")
        if 0 < self.noise_multiplier < LEAST_NOISE:
            raise ValueError(
                f"noise_multiplier = {self.noise_multiplier:g} is no noise; give 0, or {LEAST_NOISE:g} and more"
            )
        return self

    @property
    def by_sample(self) -> bool:
        """Whether clients run DP-SGD."""
        return self.clip is not None and self.level == "sample"

    @property
    def by_client(self) -> bool:
        """Whether the server sees clipped updates and adds noise."""
        return self.clip is not None and self.level == "client"


class TrialConfig(Section):
    """One federated simulation. Frozen; equal configurations have equal canonical JSON."""

    data: DataConfig = Field(default_factory=DataConfig)
    federation: FederationConfig = Field(default_factory=FederationConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    relabel: RelabelConfig = Field(default_factory=RelabelConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    privacy: PrivacyConfig = Field(default_factory=PrivacyConfig)
    seed: Annotated[Whole, Field(ge=0, lt=2**32)] = 1

    def __init__(self, **values: Any) -> None:
        """Validate the sections, given as mappings or as sections.

        Raises:
            ConfigError: every fault in one message.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(faults_of(error, TrialConfig)) from None

    @model_validator(mode="before")
    @classmethod
    def _natural_clients(cls, values: object) -> object:
        """A natural federation has the clients that its data name, unless a number is given."""
        if not isinstance(values, Mapping):
            return values
        data, federation = values.get("data"), values.get("federation", {})
        partition = data.get("partition") if isinstance(data, Mapping) else getattr(data, "partition", None)
        if partition == "natural" and isinstance(federation, Mapping) and "clients" not in federation:
            return {**values, "federation": {**federation, "clients": "auto"}}
        return values

    @model_validator(mode="after")
    def _auto_needs_names(self) -> Self:
        if not self.federation.clients and self.data.partition != "natural":
            raise ValueError(
                "federation.clients = auto: only data.partition = natural names the clients; give their number"
            )
        return self

    @property
    def relabel_round(self) -> int:
        """T: completed rounds before the first relabelling."""
        return self.relabel.start_round(self.federation.rounds)

    def relabelling(self) -> Json:
        """The relabel section as results are known by it: T as a round, no preset name, no period without a turn."""
        values = self.relabel.model_dump(mode="json", exclude={"preset", "start"})
        values = without_neutral(type(self.relabel), values)
        never = self.relabel_round + self.relabel.period >= self.federation.rounds
        if never and self.relabel.schedule == FIXED:
            values["period"] = 0
        return {"round": self.relabel_round, **values}

    def base(self) -> TrialConfig:
        """The same run without relabelling: the trunk that relabelled runs fork from."""
        return self.model_copy(update={"relabel": RelabelConfig()})

    def replace(self, changes: Mapping[str, Any]) -> TrialConfig:
        """A copy with dotted fields changed, validated anew, such as ``{"relabel.tau": 0.05}``.

        Another relabeler or schedule begins without the options of the one before. Changing ``relabel.preset`` gives
        the options that presets differ in the new preset's values.

        Raises:
            ConfigError: every unknown or wrong field in one message.
        """
        values = self.model_dump(mode="json")
        if "relabel.preset" in changes:
            for name in AUTHOR_PRESET:
                del values["relabel"][name]
        for name, options in RELABEL_PLUGS.items():
            if changes.get(f"relabel.{name}", getattr(self.relabel, name)) != getattr(self.relabel, name):
                values["relabel"].pop(options, None)
        for dotted, value in changes.items():
            set_dotted(values, dotted, value)
        return parse(values)


def parse(values: Mapping[str, Any]) -> TrialConfig:
    """Validate nested values.

    Raises:
        ConfigError: every fault in one message, unknown names with the nearest valid one.
    """
    try:
        return TrialConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(faults_of(error, TrialConfig)) from None


def field_names(model: type[BaseModel] = TrialConfig, prefix: str = "") -> list[str]:
    """All dotted names of the configuration, such as ``training.lr``."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += field_names(kind, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names
