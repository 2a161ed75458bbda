"""The names of what happens in a sample, for scripts that name nothing."""

import pickle
import sys

import pytest
from recording import record

from stallscope import _native, stage

LOADING = """
import os, time, fcntl, pickle
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return get(index)

def run(workers, context=None):
    for _ in DataLoader(Data(), batch_size=2, num_workers=workers, multiprocessing_context=context):
        pass
"""


def load(body, tmp_path, workers="0", context=None):
    script = LOADING + body + f"\nif __name__ == '__main__':\n    run({workers}, {context!r})\n"
    recorded = record(script, tmp_path)
    assert not recorded.texts("Problem")
    return recorded.part_names()



@pytest.mark.parametrize("version", ["transforms", "transforms.v2"])
@pytest.mark.parametrize("context", [None, "spawn"])
def test_transforms_are_named_by_their_class(version, context, tmp_path):
    pytest.importorskip("torchvision")
    body = f"""
import torchvision.{version} as T

def slow(x):
    time.sleep(0.01)
    return x

class RandomGrey:
    def __call__(self, x):
        time.sleep(0.005)
        return x

work = T.Compose([T.Lambda(slow), T.Compose([T.Pad(1)]), RandomGrey(), T.Lambda(slow), slow])

def get(index):
    return work(torch.zeros(3, 8, 8))
"""
    took = load(body, tmp_path, "1" if context else "0", context)
    assert set(took) == {"lambda", "compose", "pad", "random-grey", "lambda-2", "slow"}
    assert 40 <= took["lambda"] and 40 <= took["lambda-2"] and 20 <= took["random-grey"] and took["pad"] < 40


def test_transforms_made_for_a_sample_are_named_and_forgotten(tmp_path):
    pytest.importorskip("torchvision")
    body = """
import gc
import torchvision.transforms as T
from stallscope.torch import _parts

same = [T.Pad(1)]

def get(index):
    picture = torch.zeros(3, 8, 8)
    for _ in range(5):
        picture = T.Compose(same)(T.Compose([T.Pad(1)])(picture))
    gc.collect()
    assert len(_parts._STANDS) == 0, _parts._STANDS
    return picture
"""
    assert set(load(body, tmp_path)) == {"pad"}


def test_pictures_are_read_and_lazily_decoded(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.radial_gradient("L").resize((1500, 1500)).save(tmp_path / "a.jpg")
    body = """
from PIL import Image

def get(index):
    with open("a.jpg", "rb") as file:
        picture = Image.open(file)
        picture = picture.convert("RGB")
    assert picture.size == (1500, 1500)
    return index
"""
    took = load(body, tmp_path, "1")
    assert set(took) == {"read", "open-image", "decode", "convert"}
    # Each takes time of its own: 2 megapixels are decoded when the picture is converted, not when it is opened.
    assert took["decode"] > 1


def test_files_arrays_and_locks(tmp_path):
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "a.npy", numpy.arange(10))
    (tmp_path / "a.txt").write_text("ä\nb\n", encoding="utf-8")
    body = """
import numpy, io, pathlib, multiprocessing
lock = multiprocessing.Lock()

def get(index):
    with lock:
        array = numpy.load("a.npy")
    with open("a.txt", encoding="utf-8") as file:
        assert (file.mode, file.name) == ("r", "a.txt") and isinstance(file, io.TextIOWrapper)
        assert list(file) == ["ä\\n", "b\\n"]
        fcntl.flock(file, fcntl.LOCK_EX)
    with open("a.npy", mode="rb") as file:
        assert type(file) is io.BufferedReader and file.mode == "rb" and file.raw.name == "a.npy"
        assert file.read(6) == b"\\x93NUMPY" and len(file.read()) == file.tell() - 6
    with open(pathlib.Path("a.npy"), "rb") as file:
        assert file.name == "a.npy"
    try:
        open("a.npy", "rb", encoding="")
        raise AssertionError
    except ValueError:
        pass
    assert pathlib.Path("a.txt").read_bytes() == "ä\\nb\\n".encode()
    try:
        open("missing")
    except FileNotFoundError as error:
        assert error.filename == "missing"
    return array
"""
    took = load(body, tmp_path, "2")
    assert set(took) == {"read", "load-array", "lock"}


def test_a_lock_that_another_worker_holds_is_a_part(tmp_path):
    body = """
def get(index):
    with open("lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(0.4)
    return index
"""
    took = load(body, tmp_path, "2")
    assert took["lock"] > 100


def test_nothing_is_made_up_for_data_in_memory(tmp_path):
    assert load("def get(index):\n    return index\n", tmp_path, "1") == {}


@pytest.mark.parametrize(
    "name, part",
    [
        ("RandomResizedCrop", "random-resized-crop"),
        ("PILToTensor", "pil-to-tensor"),
        ("ToTensor", "to-tensor"),
        ("Tokenize words!", "tokenize-words"),
        ("a_b-c9", "a_b-c9"),
        ("copy", "copy-part"),
        ("3D", "part-3-d"),
        ("_hidden", "part-hidden"),
        ("ä", "part"),
        ("", "part"),
    ],
)
def test_part_names(name, part):
    assert _native.part_name(name) == part


def add(a, b=1):
    """Adds."""
    return a + b


original_add, add = add, _native.timed(add, "add")


def test_what_is_timed_is_what_it_was():
    import copy
    import inspect

    assert add(1) == 2 and add(1, b=3) == 4
    assert add.__name__ == "add" and add.__doc__ == "Adds." and add.__wrapped__ is original_add
    assert inspect.signature(add) == inspect.signature(original_add)
    assert add == original_add and hash(add) == hash(original_add) and add in {original_add}
    # It is pickled by its name where it is found under that, and else with what it wraps.
    assert pickle.loads(pickle.dumps(add)) is add and copy.deepcopy(add) is add
    other = pickle.loads(pickle.dumps(_native.timed(len, "length")))
    assert isinstance(other, _native.Timed) and other([1]) == 1
    with pytest.raises(TypeError):
        add()


def test_a_timed_method_is_bound():
    class Cart:
        get = _native.timed(lambda self, more: (self, more), "get")
        count = _native.timed(len, "count")
        static = _native.timed(staticmethod(len), "static")

    cart = Cart()
    assert cart.get(2) == (cart, 2) and Cart.get(1, 2) == (1, 2)
    # A built-in function is no method, and neither is a static one.
    assert cart.count([1, 2]) == 2
    if sys.version_info >= (3, 10):
        assert cart.static([1, 2]) == 2


def test_stages_do_not_change_what_they_are_around():
    @stage("double")
    def double(x):
        return 2 * x

    assert double(4) == 8
    with pytest.raises(KeyError), stage("x"):
        raise KeyError("y")
    with stage("a"), stage("a"):
        pass
    with pytest.raises(TypeError):
        stage("a")(3)
    again = pickle.loads(pickle.dumps(stage("a")))
    with again:
        assert again.name == "a"
