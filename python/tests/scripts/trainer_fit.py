"""Hugging Face's Trainer (and with it accelerate) on a model of its own. Prints the logged losses."""

import tempfile

import torch
from plain import Numbers
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainingArguments


class Rows(Dataset):
    def __init__(self, count):
        self.numbers = Numbers(count)

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        inputs, label = self.numbers[index]
        return {"inputs": inputs, "labels": label}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(16, 4)

    def forward(self, inputs, labels):
        logits = self.line(inputs)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


if __name__ == "__main__":
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=2, per_device_train_batch_size=8, logging_steps=1, report_to=[], save_strategy="no",
            dataloader_num_workers=2, use_cpu=True, seed=7, disable_tqdm=True, eval_strategy="epoch", remove_unused_columns=False,
        )
        trainer = Trainer(Model(), arguments, train_dataset=Rows(96), eval_dataset=Rows(16))
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        for row in trainer.state.log_history:
            for name in ("loss", "eval_loss"):
                if name in row:
                    print(f"{name} {row[name]:.9f}")
