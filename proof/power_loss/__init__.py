"""What is left on a disk when the power goes: every write and sync of a store's real processes is recorded, and the
disk is rebuilt as it may be at any moment between two of them. `python -m proof.power_loss`."""
