"""What another accelerator can run, and at which precision: facts as data, each with its source."""
