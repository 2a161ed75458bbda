#!/usr/bin/env python3
"""How far losses move where the factors of products and convolutions are rounded to TF32, as on tensor cores.

usage: tf32_losses.py [--models linear,dense,resnet18,resnet50] [--seeds N]

Trains as check b of gpu-check.py does (batches of 4 pictures of 64 x 64, or of 64 digits; SGD, learning rate 0.001, 20 steps),
on random data and on the CPU, in f32 and with rounded factors, forward and backward. Prints the largest relative difference of
the first three losses and of the twentieth. The limits of that check rest on it. Needs torch and torchvision.
"""

import argparse

import torch
import torch.nn.functional as functional
import torchvision
from torch.autograd.function import once_differentiable

STEPS = 20


def rounded(values):
    """To the nearest with 10 bits behind the leading one, ties to even."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, weights, bias):
        ctx.save_for_backward(values, weights)
        return rounded(values) @ rounded(weights).t() + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        values, weights = ctx.saved_tensors
        factor = rounded(gradient)
        return factor @ rounded(weights), factor.t() @ rounded(values), gradient.sum(0)


class Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weights, stride, padding):
        ctx.save_for_backward(features, weights)
        ctx.stride, ctx.padding = stride, padding
        return functional.conv2d(rounded(features), rounded(weights), None, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        features, weights = ctx.saved_tensors
        factor = rounded(gradient)
        to_features = torch.nn.grad.conv2d_input(features.shape, rounded(weights), factor, ctx.stride, ctx.padding)
        to_weights = torch.nn.grad.conv2d_weight(rounded(features), weights.shape, factor, ctx.stride, ctx.padding)
        return to_features, to_weights, None, None


def round_factors(model):
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.forward = lambda values, layer=layer: Product.apply(values, layer.weight, layer.bias)
        elif isinstance(layer, torch.nn.Conv2d):
            # ResNet's convolutions have no bias.
            layer.forward = lambda features, layer=layer: Convolution.apply(
                features, layer.weight, layer.stride, layer.padding)


def network(kind):
    """A model with ten outputs, and the shape of its batches."""
    layers = [torch.nn.Flatten()]
    if kind == "linear":
        layers += [torch.nn.Linear(784, 10)]
    elif kind == "dense":
        layers += [torch.nn.Linear(784, 300), torch.nn.ReLU(), torch.nn.Linear(300, 100), torch.nn.ReLU()]
        layers += [torch.nn.Linear(100, 10)]
    else:
        return getattr(torchvision.models, kind)(num_classes=10), (4, 3, 64, 64)
    return torch.nn.Sequential(*layers), (64, 1, 28, 28)


def losses(kind, seed, is_rounded):
    torch.manual_seed(seed)
    model, shape = network(kind)
    if is_rounded:
        round_factors(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    found = []
    for _ in range(STEPS):
        images, labels = torch.randn(shape), torch.randint(0, 10, shape[:1])
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="linear,dense,resnet18,resnet50")
    parser.add_argument("--seeds", type=int, default=6)
    asked = parser.parse_args()
    for kind in asked.models.split(","):
        first, last = [], []
        for seed in range(asked.seeds):
            pairs = zip(*(losses(kind, seed, is_rounded) for is_rounded in (False, True)), strict=True)
            apart = [abs(b - a) / abs(a) for a, b in pairs]
            first.append(max(apart[:3]))
            last.append(apart[-1])
        print(f"{kind}: first 3 losses {max(first):.1e} apart at most, that of step {STEPS} {max(last):.1e}", flush=True)


if __name__ == "__main__":
    main()
