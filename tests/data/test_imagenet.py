"""ImageNet-LT by its split lists: what is read, what is refused, and what a kill leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedrela_bench.data import load_dataset
from fedrela_bench.data.sources import Effort, RawData, Reading, blocks, decoding, read_source
from fedrela_bench.defaults import resolve
from fedrela_bench.errors import ConfigError, DataError
from tests.data.trees import CLASSES, COUNTS, TESTED, die, journal, jpeg, picture, put, rewrite, write_tree

SIDE = 16


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("made"))


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "tree"))


@pytest.fixture
def told() -> list[str]:
    return []


def read(root: Path, cache: Path | None = None, told: list[str] | None = None, workers: int | None = None) -> RawData:
    effort = Effort(workers, (told if told is not None else []).append)
    return read_source("imagenet", Reading(image_size=SIDE), root, cache, effort)


def refused(root: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(root)
    return str(caught.value)


# what is read --------------------------------------------------------------------------------------------------------


def test_the_lists_decide_images_labels_and_order(made: Path) -> None:
    raw = read(made)
    assert np.bincount(raw.train_labels).tolist() == list(COUNTS)
    assert np.bincount(raw.test_labels).tolist() == [TESTED] * CLASSES
    assert raw.class_names == tuple(f"n{label:08d}" for label in range(CLASSES))
    assert isinstance(raw.train_images, np.memmap) and isinstance(raw.test_images, np.memmap)
    assert raw.train_images.shape == (sum(COUNTS), SIDE, SIDE, 3)
    for row in (0, 40, 112):
        label = int(raw.train_labels[row])
        image = picture(label, row - sum(COUNTS[:label]))
        short = min(image.size)
        left, top = (image.size[0] - short) / 2, (image.size[1] - short) / 2
        box = (left, top, left + short, top + short)
        wanted = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box), dtype=float)
        assert np.abs(raw.train_images[row] - wanted).mean() < 12  # JPEG and noise


def test_flat_and_class_folders_of_test_images_are_the_same_data(made: Path, tmp_path: Path) -> None:
    folders = write_tree(tmp_path / "folders", flat=False)
    other = read(folders, tmp_path / "a")
    assert other.pixels == read(made, tmp_path / "b").pixels
    # Lists that name the class folders, and a flat tree.
    listed = (folders / "ImageNet_LT_test.txt").read_text().splitlines()
    named = [line.replace("val/", f"val/n{int(line.split()[1]):08d}/") for line in listed]
    shutil.copytree(made, tmp_path / "flat")
    (tmp_path / "flat" / "ImageNet_LT_test.txt").write_text("\n".join(named))
    assert read(tmp_path / "flat", tmp_path / "c").pixels == other.pixels


@pytest.mark.parametrize("root", ["ILSVRC2012", "ILSVRC/Data/CLS-LOC"])
def test_images_may_lie_below_the_lists(tree: Path, root: str) -> None:
    for split in ("train", "val"):
        shutil.copytree(tree / split, tree / root / split)
        shutil.rmtree(tree / split)
    (tree / "ImageNet_LT").mkdir()
    for file in tree.glob("*.txt"):
        file.rename(tree / "ImageNet_LT" / file.name)
    assert len(read(tree).train_labels) == sum(COUNTS)


def test_the_number_of_workers_changes_no_bit(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 32)
    alone, two = read(made, tmp_path / "a", workers=1), read(made, tmp_path / "b", workers=2)
    assert alone.pixels == two.pixels
    assert np.array_equal(alone.train_images, two.train_images)
    assert np.array_equal(alone.test_images, two.test_images)


def test_grey_and_cmyk_pictures_and_other_formats_become_rgb(tree: Path) -> None:
    folder = tree / "train" / "n00000000"
    put(folder / "n00000000_0.JPEG", jpeg(Image.new("L", (30, 50), 77)))
    put(folder / "n00000000_1.JPEG", jpeg(Image.new("RGB", (50, 30), (200, 40, 90)).convert("CMYK")))
    Image.new("RGB", (20, 20), (1, 2, 3)).save(folder / "n00000000_2.JPEG", "PNG")
    Image.new("P", (20, 20)).save(folder / "n00000000_3.JPEG", "GIF")
    first = read(tree).train_images[:4].astype(int)
    assert np.abs(first[0] - 77).max() <= 2
    assert np.abs(first[1] - (200, 40, 90)).max() <= 6
    assert (first[2] == (1, 2, 3)).all()
    assert (first[3] == first[3, 0, 0, 0]).all()


def test_a_large_jpeg_is_scaled_from_its_centre(tree: Path) -> None:
    pixels = np.zeros((600, 1000, 3), dtype=np.uint8)
    pixels[:, 200:800] = 255  # the centre square
    put(tree / "train/n00000000/n00000000_0.JPEG", jpeg(Image.fromarray(pixels)))
    assert read(tree).train_images[0].min() >= 200


# what is kept --------------------------------------------------------------------------------------------------------


def test_once_decoded_only_the_lists_are_needed(tree: Path, told: list[str]) -> None:
    first = read(tree, told=told)
    assert "decoding 161 images to 16x16" in told[0] and "161 of 161" in told[-1]
    shutil.rmtree(tree / "train")
    shutil.rmtree(tree / "val")
    del told[:]
    again = read(tree, told=told)
    assert told == []
    assert again.pixels == first.pixels and again.key == first.key


def test_other_images_at_the_same_place_are_decoded_anew(tree: Path) -> None:
    first = read(tree)
    put(tree / "train/n00000000/n00000000_0.JPEG", jpeg(Image.new("RGB", (60, 60), "red")))
    second = read(tree)
    assert second.pixels != first.pixels
    assert (second.train_images[0, 8, 8] > 200).tolist() == [True, False, False]


def test_damage_in_the_cache_is_repaired(made: Path, cache: Path, told: list[str]) -> None:
    pixels = read(made).pixels
    (file,) = cache.glob("arrays/*/train_images.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 255
    file.write_bytes(content)
    assert read(made, told=told).pixels == pixels
    assert "decoding 161 images" in told[0]


def test_a_thorough_look_sees_damage_anywhere(made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 8)
    read(made)
    (file,) = cache.glob("arrays/*/train_images.npy")
    content = bytearray(file.read_bytes())
    content[128 + 9 * SIDE * SIDE * 3] ^= 255  # in the second block, which is no probe
    file.write_bytes(content)
    told: list[str] = []
    assert read(made, told=told).key and told == []
    read_source("imagenet", Reading(image_size=SIDE), made, None, Effort(tell=told.append, thorough=True))
    assert "decoding 161 images" in told[0]


DECODE = """
import sys, time
from pathlib import Path
from fedrela_bench.data.sources import Effort, Reading, blocks, decoding, read_source
blocks.BLOCK = 8
decode = decoding.decode_block
def slow(task):
    time.sleep(0.05)
    return decode(task)
decoding.decode_block = slow
read_source("imagenet", Reading(image_size=16), Path(sys.argv[1]), Path(sys.argv[2]), Effort(workers=1))
"""


def test_after_a_kill_the_finished_blocks_are_kept(
    made: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 8)
    whole = read(made, tmp_path / "whole")
    process = subprocess.Popen([sys.executable, "-c", DECODE, str(made), str(cache)], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and len([*cache.glob("arrays/*.part/blocks.jsonl")]) == 0:
            time.sleep(0.01)
        while process.poll() is None and len(journal(cache)) < 3:
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = len(journal(cache))
    assert 3 <= done < 21
    (file,) = cache.glob("arrays/*.part/blocks.jsonl")
    file.write_text(file.read_text() + '{"split": "tr')  # a cut line is no line
    resumed = read(made, cache, told)
    assert f"{8 * done} are there" in told[0]
    assert resumed.pixels == whole.pixels
    assert np.array_equal(resumed.train_images, whole.train_images)
    assert not [*cache.glob("arrays/*.part")]


STUCK = """
import sys, time
from pathlib import Path
from fedrela_bench.data.sources import Effort, Reading, blocks, read_source
if __name__ == "__main__":
    blocks.BLOCK = 8
    def note(self, line):
        print("working", flush=True)
        time.sleep(3600)
    blocks.Blocks.note = note
    read_source("imagenet", Reading(image_size=16), Path(sys.argv[1]), Path(sys.argv[2]), Effort(workers=2))
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are read from /proc")
def test_workers_end_with_a_process_that_is_killed(made: Path, cache: Path) -> None:
    command = [sys.executable, "-c", STUCK, str(made), str(cache)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "working\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        assert len(workers) == 2 and all(map(lives, workers))
    finally:
        process.kill()
        process.wait()
    while any(map(lives, workers)):
        time.sleep(0.05)
    assert len(read(made, cache).train_labels) == sum(COUNTS)


def test_two_processes_share_the_work_of_one(made: Path, cache: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", DECODE, str(made), str(cache)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    texts = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    assert sum("decoding 161 images" in text for text in texts) == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_is_that_of_a_few_blocks(made: Path, tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from fedrela_bench.data.sources import Effort, Reading, blocks, read_source
read = lambda side: read_source("imagenet", Reading(image_size=side), Path(sys.argv[1]), Path(sys.argv[2]), Effort(1))
blocks.BLOCK = 16
def peak():  # of this program alone, unlike getrusage's
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
read(16)
before = peak()
raw = read(256)
print(peak() - before, raw.train_images.nbytes + raw.test_images.nbytes)
"""
    command = [sys.executable, "-c", script, str(made), str(tmp_path / "cache")]
    grown, arrays = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    block = 16 * 256 * 256 * 3
    assert arrays > 9 * block
    assert grown * 1024 < 5 * block


# what is refused -----------------------------------------------------------------------------------------------------

LISTS = ("ImageNet_LT_train.txt", "ImageNet_LT_test.txt")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (0, "n00000000_3.JPEG 0", "n00000000_3.JPEG", ["ImageNet_LT_train.txt", "line 4", "path and a label"]),
        (0, "n00000000_3.JPEG 0", "n00000000_3.JPEG zero", ["line 4"]),
        (0, "n00000000_3.JPEG 0", "n00000000_3.JPEG 1000", ["line 4", "from 0 to 999"]),
        (0, "train/n00000000/n00000000_3.JPEG 0", "/train/x.JPEG 0", ["line 4", "relative path"]),
        (0, "train/n00000000/n00000000_3.JPEG 0", "../x.JPEG 0", ["line 4"]),
        (0, "n00000000_3.JPEG 0", "n00000000_2.JPEG 0", ["1 images twice", "in lines 3 and 4"]),
        (0, "n00000011_0.JPEG 11", "n00000011_0.JPEG 13", ["no image of class 11, 12"]),
        (1, "val_00000001.JPEG 0", "val_00000001.JPEG 14", ["line 1: label 14", "end at 11"]),
        (1, "val/ILSVRC2012_val_00000001.JPEG", "train/n00000000/n00000000_0.JPEG", ["in both lists"]),
    ],
)
def test_faulty_lists_name_file_and_line(tree: Path, file: int, old: str, new: str, words: list[str]) -> None:
    rewrite(tree / LISTS[file], old, new)
    text = refused(tree)
    assert all(word in text for word in words), text


def test_web_pages_binary_files_and_empty_lists_are_told_together(tree: Path) -> None:
    (tree / LISTS[0]).write_text("<!DOCTYPE html><html></html>")
    (tree / LISTS[1]).write_bytes(b"\xff\xfe\x00")
    text = refused(tree)
    assert "ImageNet_LT_train.txt is a web page" in text and "ImageNet_LT_test.txt is not text" in text
    (tree / LISTS[0]).write_text("\n")
    assert "is empty" in refused(tree)


def test_swapped_lists_are_noticed(tree: Path) -> None:
    texts = [(tree / name).read_text() for name in LISTS]
    for name, text in zip(LISTS, reversed(texts), strict=True):
        (tree / name).write_text(text)
    assert "look swapped" in refused(tree)


def test_missing_images_are_counted_and_the_first_ten_named(tree: Path) -> None:
    for number in range(12):
        (tree / f"train/n00000000/n00000000_{number}.JPEG").unlink()
    (tree / "val/ILSVRC2012_val_00000005.JPEG").unlink()
    text = refused(tree)
    assert "12 of 113 train images are missing" in text and "1 of 48 test images are missing" in text
    assert "n00000000_9.JPEG (ImageNet_LT_train.txt, line 10) and 2 more" in text
    assert "ILSVRC2012_img_val" in text


def test_images_that_cannot_be_decoded_are_all_named_and_the_rest_is_kept(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 8)
    good = (tree / "train/n00000000/n00000000_1.JPEG").read_bytes()
    put(tree / "train/n00000000/n00000000_1.JPEG", good[: len(good) // 2])
    put(tree / "val/ILSVRC2012_val_00000002.JPEG", b"no image")
    text = refused(tree)
    assert "2 images cannot be decoded" in text
    assert "n00000000_1.JPEG (ImageNet_LT_train.txt, line 2)" in text and "is not a readable image" in text
    assert "ILSVRC2012_val_00000002.JPEG (ImageNet_LT_test.txt, line 2)" in text
    assert len(journal(cache)) == 21 - 2
    put(tree / "train/n00000000/n00000000_1.JPEG", good)
    put(tree / "val/ILSVRC2012_val_00000002.JPEG", good)
    # An image that was decoded already is replaced meanwhile: its block is not kept.
    put(tree / "train/n00000000/n00000000_20.JPEG", jpeg(Image.new("RGB", (60, 60), "red")))
    raw = read(tree, told=told)
    assert "decoding 24 images" in told[0]
    assert (raw.train_images[20, 8, 8] > 200).tolist() == [True, False, False]


def test_lists_without_images_and_nothing_at_all_say_what_to_put_where(tree: Path, tmp_path: Path) -> None:
    shutil.rmtree(tree / "train")
    shutil.rmtree(tree / "val")
    assert "no image is" in refused(tree) and "link) train/ and val/" in refused(tree)
    (tree / LISTS[1]).unlink()
    text = refused(tree)
    assert "lacks ImageNet_LT_test.txt" in text and "cannot be downloaded" in text and "terms" in text


def test_too_small_a_disk_is_told_before_anything_is_decoded(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(made)._replace(free=50_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    text = refused(made)
    assert "FEDRELA_CACHE" in text and "data.image_size" in text
    assert not [*cache.glob("arrays/*.part")]


def test_a_worker_that_is_killed_costs_no_finished_block(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "decode_block", die)
    with pytest.raises(DataError, match=r"ended by itself.*what is decoded is kept"):
        read(made, workers=2)


# configuration -------------------------------------------------------------------------------------------------------


def test_the_data_set_is_the_lists_own_and_says_so(made: Path) -> None:
    config = resolve("imagenet_lt", overrides={"data.image_size": SIDE, "data.augment": "none"}).config
    dataset = load_dataset(config, made)
    assert dataset.name == "imagenet_lt"
    assert dataset.class_counts.tolist() == list(COUNTS)
    assert len(dataset.clients) == 20
    assert any("30 to 1 a class (factor 30); nothing is thinned" in text for text in dataset.stated)
    assert any("not the published lists" in text for text in dataset.stated)
    other = load_dataset(config.replace({"data.image_size": 20}), made)
    assert other.digest != dataset.digest


@pytest.mark.parametrize(
    ("field", "value"),
    [("profile", "step"), ("profile", "balanced"), ("imbalance_factor", 50), ("n_max", 10), ("label_column", "x")],
)
def test_what_the_lists_fix_is_refused(made: Path, field: str, value: object) -> None:
    config = resolve("imagenet_lt").config.replace({f"data.{field}": value})
    with pytest.raises(ConfigError, match=f"data.{field} = "):
        load_dataset(config, made)


def test_published_and_small_settings() -> None:
    paper, small = (resolve("imagenet_lt", size=size).config for size in ("paper", "cpu"))  # type: ignore[arg-type]
    assert (paper.training.model, paper.data.image_size, paper.data.alpha) == ("resnet50", 224, 0.1)
    for config in (paper, small):
        assert (config.federation.clients, config.federation.participation) == (20, 0.4)
    assert small.data.image_size == 64
    loge = resolve("imagenet_lt", "fedloge", "paper").config.training
    assert (loge.lr, loge.momentum, loge.batch_size) == (0.03, 0.5, 32)
