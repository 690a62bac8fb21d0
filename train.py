"""Train a backbone with an attention mechanism: one run from one YAML.

python train.py --config configs/cifar10/resnet20_cbam.yaml --trainer.max_epochs 5
python train.py --model.name mobilenet_v2 --model.attention se --data.name image_folder --data.root my/images
python train.py --resume runs/cifar10/resnet20_cbam/seed0

The run itself reads as a story in zoo/training/program.py.
"""

import sys

from zoo.training.program import main

if __name__ == "__main__":
    sys.exit(main())
