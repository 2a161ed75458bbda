"""Lightning's Trainer, with its sanity check before training. Prints every training loss."""

import lightning
import torch
from plain import Numbers
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(16, 4)

    def loss(self, batch):
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(self.line(inputs), labels)

    def training_step(self, batch, _):
        loss = self.loss(batch)
        print(f"loss {loss.item():.9f}")
        return loss

    def validation_step(self, batch, _):
        print(f"validation {self.loss(batch).item():.9f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    lightning.seed_everything(7)
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    training = DataLoader(Numbers(96), batch_size=8, shuffle=True, num_workers=2)
    trainer.fit(Model(), training, DataLoader(Numbers(16), batch_size=8, num_workers=2))
