"""`stallscope.torch.Loader`: whose tensors, how many, how long they live, and what is left when it ends."""

import gc
import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from stallscope.torch import Loader  # noqa: E402

STALLSCOPE = [sys.executable, "-m", "stallscope"]
DEADLINE = 120
# Order::Random of 10 samples, seed 42, as the engine's own tests pin it.
ORDERS = [[2, 3, 6, 7, 8, 4, 0, 9, 5, 1], [0, 5, 6, 2, 9, 4, 8, 7, 3, 1]]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "photos"
    command = [*STALLSCOPE, "data", "generate", str(folder), "--images", "30", "--classes", "3"]
    subprocess.run(command, check=True, timeout=DEADLINE, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """Ten pictures of 2x3 in MNIST's format: picture n has the pixels 10 n, 10 n + 1, ..., and the class n."""
    folder = tmp_path_factory.mktemp("mnist")
    pixels = bytes(10 * n + at for n in range(10) for at in range(6))
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 10, 2, 3) + pixels)
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 10) + bytes(range(10)))
    return folder


def of_mnist(folder, **more):
    settings = {"batch_size": 4, "seed": 42, "drop_last": False, "mean": [0.5], "std": [0.25], **more}
    return Loader(path=folder, format="mnist", **settings)


def labels(loader):
    return [batch[1].tolist() for batch in loader]


def equal(some, others):
    pairs = zip(some, others)
    return len(some) == len(others) and all(torch.equal(a, b) for one, other in pairs for a, b in zip(one, other))


def threads():
    return sorted(Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task"))


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_values_and_order_are_the_command_lines(mnist):
    loader = of_mnist(mnist, num_workers=2)
    assert (len(loader), len(loader.dataset), loader.dataset.classes) == (3, 10, 10)
    for order in ORDERS:
        batches = list(loader)
        assert [at for batch in batches for at in batch[1].tolist()] == order
        for images, classes in batches:
            assert images.dtype == torch.float32 and classes.dtype == torch.int64
            assert images.shape == (len(classes), 1, 2, 3) and images.is_contiguous()
            pixels = classes[:, None] * 10 + torch.arange(6)
            expected = (pixels / 255 - 0.5) / 0.25
            assert torch.allclose(images.flatten(1), expected, atol=1e-6)


def test_pictures_are_those_of_torchvision(tmp_path):
    transforms = pytest.importorskip("torchvision.transforms")
    from PIL import Image

    for at in range(6):
        folder = tmp_path / f"class{at % 2}"
        folder.mkdir(exist_ok=True)
        noise = torch.randint(256, (64, 80, 3), dtype=torch.uint8).numpy()
        Image.fromarray(noise).save(folder / f"{at}.png")
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    loader = Loader(path=tmp_path, shuffle=False, batch_size=6, crop="center", flip=0, preprocess_resize=64, size=56)
    ((images, classes),) = loader
    both = transforms.Compose([transforms.CenterCrop(56), transforms.ToTensor(), transforms.Normalize(mean, std)])
    files = sorted(tmp_path.glob("*/*.png"))
    assert classes.tolist() == [0, 0, 0, 1, 1, 1]
    expected = torch.stack([both(Image.open(file)) for file in files])
    assert torch.allclose(images, expected, atol=1e-5)


def test_a_pipeline_file_and_keywords_make_the_same_loader(photos, tmp_path):
    file = tmp_path / "pipeline.toml"
    file.write_text(f"source.path = {json.dumps(str(photos))}\nbatch.size = 8\nseed = 5\npreprocess.size = 64\n")
    of_file, of_keywords = Loader(file), Loader(path=photos, batch_size=8, seed=5, size=64, num_workers=2)
    for _ in range(2):
        assert equal(list(of_file), list(of_keywords))
    assert not equal(list(Loader(file)), list(Loader(file, seed=6)))
    assert of_file.batch_size == 8


def test_epochs_follow_each_other_or_are_set(mnist):
    loader = of_mnist(mnist)
    first, second = labels(loader), labels(loader)
    assert first != second
    loader.set_epoch(0)
    assert labels(loader) == first
    loader.sampler.set_epoch(1)
    for _ in loader:
        break
    loader.set_epoch(1)
    assert labels(loader) == second


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_an_epoch(mnist, drop_last):
    ranks = [of_mnist(mnist, rank=rank, world_size=3, batch_size=2, drop_last=drop_last) for rank in range(3)]
    for order in ORDERS:
        dealt = [sum(labels(loader), []) for loader in ranks]
        filled = order[:6] if drop_last else order + order[:2]
        assert dealt == [(filled if not drop_last else order[:9])[rank::3][: len(filled) // 3] for rank in range(3)]
        assert [len(loader) for loader in ranks] == [1 if drop_last else 2] * 3


def test_ranks_are_those_of_the_launcher(mnist, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sum(labels(of_mnist(mnist)), []) == ORDERS[0][1::2]


def test_a_state_resumes_in_the_middle(photos):
    make = lambda: Loader(path=photos, batch_size=4, size=32, num_workers=2)  # noqa: E731
    loader = make()
    list(loader)
    batches = iter(loader)
    next(batches), next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    left, after = list(batches), list(loader)
    resumed = make()
    resumed.load_state_dict(state)
    resumed.set_epoch(1)
    assert equal(list(resumed), left) and len(left) == 5
    assert equal(list(resumed), after)
    assert loader.state_dict()["epoch"] == 3 and loader.state_dict()["batch"] == 0
    with pytest.raises(ValueError, match="batch_size=4, and this one has 5"):
        Loader(path=photos, batch_size=5, size=32).load_state_dict(state)


def test_kept_batches_and_views_stay_as_they_are(mnist):
    loader = of_mnist(mnist, num_workers=2, batch_size=2)
    kept = []
    for _ in range(200):
        kept += [(images, images.clone()) for images, _ in loader]
    view = loader_view(loader)
    del loader
    gc.collect()
    assert len(kept) == 1000 and all(torch.equal(one, copy) for one, copy in kept)
    assert view.tolist() == view.clone().tolist()
    # It is the user's own: writing to one changes no other.
    kept[0][0].zero_()
    assert torch.equal(kept[1][0], kept[1][1])


def loader_view(loader):
    images, _ = next(iter(loader))
    return images[0, 0, 0]


def test_memory_does_not_grow(photos):
    loader = Loader(path=photos, batch_size=10, size=64, num_workers=2)
    places = set()

    def batches(epochs):
        for _ in range(epochs):
            for images, _ in loader:
                places.add(images.data_ptr())

    batches(20)
    seen, before = len(places), resident()
    batches(100)
    assert len(places) <= seen + 3, "buffers come back"
    assert resident() - before < 8 << 20


def test_errors_name_the_sample(photos, tmp_path):
    broken = tmp_path / "photos" / "a" / "broken.jpg"
    broken.parent.mkdir(parents=True)
    broken.write_text("no picture")
    for file in sorted(photos.glob("*/*"))[:5]:
        os.link(file, broken.parent / file.name)
    with pytest.raises(RuntimeError, match="broken.jpg"):
        list(Loader(path=broken.parent.parent, batch_size=6, size=32, shuffle=False))
    loader = Loader(path=broken.parent.parent, batch_size=6, size=32, shuffle=False, on_error="skip")
    ((images, classes),) = loader
    assert len(images) == len(classes) == 5
    # Loading ahead into the next epoch may have skipped it again.
    (skipped,) = loader.report()["skipped"]["listed"]
    assert skipped["name"] == str(broken)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"batch_sise": 4}, "did you mean `batch.size`"),
        ({"batch_size": 0}, "batch.size"),
        ({"path": "/nowhere"}, "/nowhere"),
        ({"batch_size": 31}, "drop_last = false"),
        ({"preprocess_on": "device"}, "leave it out"),
        ({"rank": 2, "world_size": 2}, "world_size"),
    ],
)
def test_settings_that_cannot_be_are_refused(photos, settings, message):
    with pytest.raises(ValueError, match=message):
        Loader(**{"path": photos, **settings})


def test_the_report_is_of_this_loop(photos, tmp_path):
    loader = Loader(path=photos, batch_size=3, size=32, num_workers=1, warmup_steps=2, trace=tmp_path / "trace.json")
    assert loader.report() is None
    for _ in range(2):
        for _ in loader:
            time.sleep(0.02)
    loader.close()
    report = loader.report()
    assert report["steps"] == 18 and report["status"] == "complete" and report["verdict"]
    assert report["device"]["busy_ns"] > 18 * 19e6
    assert json.loads((tmp_path / "trace.json").read_text())
    loader.save_report(tmp_path / "report.json")
    predict = [*STALLSCOPE, "predict", str(tmp_path / "report.json"), "--set", "num_workers=2"]
    assert subprocess.run(predict, timeout=DEADLINE, stdout=subprocess.DEVNULL).returncode == 0


def test_nothing_is_left_behind(photos):
    gc.collect()
    before = Counter(threads())
    make = lambda: Loader(path=photos, batch_size=4, size=32, num_workers=2)  # noqa: E731
    for _ in make():
        break
    with pytest.raises(KeyError):
        for _ in make():
            raise KeyError
    with make() as loader:
        next(iter(loader))
    stale = iter(loader)
    next(iter(loader))
    with pytest.raises(RuntimeError, match="another iteration"):
        next(stale)
    del loader, stale
    gc.collect()
    assert not Counter(threads()) - before


def test_a_forked_child_is_told_and_ends(mnist):
    loader = of_mnist(mnist, num_workers=1)
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        try:
            next(batches)
            os._exit(1)
        except RuntimeError as error:
            loader.close()
            del loader, batches
            os._exit(0 if "forked" in str(error) else 2)
    deadline = time.monotonic() + DEADLINE
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert sum((batch[1].tolist() for batch in batches), []) == ORDERS[0][4:]


SLOW = """
    import signal, sys, threading
    from stallscope.torch import Loader
    loader = Loader(path={photos!r}, batch_size=4, size=32, num_workers=1, storage_emulate="hdd", storage_latency="2s")
    {before}
    for batch in loader:
        {within}
"""


def script(photos, before="pass", within="pass"):
    text = textwrap.dedent(SLOW).format(photos=str(photos), before=before, within=within)
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_wait_ends_with_a_signal(photos, kind):
    child = script(photos, before="print('ready', flush=True)")
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.send_signal(kind)
        _, error = child.communicate(timeout=DEADLINE)
    finally:
        child.kill()
    assert child.returncode == -kind, error
    assert ("KeyboardInterrupt" in error) == (kind == signal.SIGINT)


def test_others_run_while_it_waits(photos):
    """The interpreter's lock is not held."""
    loader = Loader(path=photos, batch_size=2, size=32, num_workers=1, storage_emulate="hdd", storage_latency="300ms")
    turns = []
    over = threading.Event()

    def turn():
        while not over.wait(0.01):
            turns.append(time.monotonic())

    other = threading.Thread(target=turn)
    other.start()
    try:
        next(iter(loader))
    finally:
        over.set()
        other.join()
    assert len(turns) > 20


@pytest.mark.parametrize("ending", ["raise KeyError", "sys.exit()", "break"])
def test_a_script_may_end_anywhere(photos, ending):
    child = script(photos, within=ending)
    try:
        child.communicate(timeout=DEADLINE)
    finally:
        child.kill()
    assert child.returncode == (1 if "raise" in ending else 0)
