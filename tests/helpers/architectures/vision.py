"""Models of images: timm, torchvision, and models of this project's own."""

import timm
import torch
import torchvision
from torch import Tensor, nn

from helpers.architectures.entry import Architecture, Draw, draw_images


def _timm(name: str, head: str, width: int, size: int = 32, outputs: int = 1, **options: object) -> Architecture:
    exports, shown = options.pop("exports", ()), options.pop("shown", name)

    def factory() -> nn.Module:
        return timm.create_model(name, num_classes=outputs, **options)

    return Architecture(str(shown), "timm", factory, draw_images(size), head, width, exports=exports)  # type: ignore[arg-type]


def _mixer() -> nn.Module:
    model = timm.models.MlpMixer(num_classes=1, img_size=32, patch_size=8, num_blocks=2, embed_dim=24)
    nn.init.normal_(model.head.weight)  # zero without training
    return model


def _vgg() -> nn.Module:
    with torch.device("meta"):  # the classifier of its constructor has 100 million weights
        model = torchvision.models.VGG(nn.Identity(), init_weights=False)
    model.features = torchvision.models.vgg.make_layers([8, "M", 16, "M", 16, "M"])
    model.avgpool = nn.AdaptiveAvgPool2d(2)
    model.classifier = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Dropout(), nn.Linear(24, 1))
    return model


def _squeezenet() -> nn.Module:
    model = torchvision.models.squeezenet1_1(num_classes=2)
    nn.init.ones_(model.classifier[1].bias)  # a ReLU follows
    return model


class DepthNet(nn.Module):
    """Model with one output per pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
        )
        self.depth = nn.Conv2d(8, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        return self.depth(self.body(image).relu())


class ImageAndTable(nn.Module):
    """Model of an image and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.image_net = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
        )
        self.table_net = nn.Sequential(nn.Linear(5, 10), nn.LayerNorm(10), nn.ReLU())
        self.fc = nn.Linear(34, 1)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        return self.fc(torch.cat([self.image_net(image).flatten(1), self.table_net(table)], dim=1)).squeeze(1)


def _draw_image_and_table(kind: str) -> Draw:
    draw = draw_images(16)

    def draw_both(rows: int, seed: int, shift: float = 0.0) -> object:
        random = torch.Generator().manual_seed(seed)
        image, table = draw(rows, seed, shift), torch.randn(rows, 5, generator=random) + shift
        labels = torch.rand(rows, generator=random)
        if kind == "dict":
            return {"table": table, "image": image, "price": labels}
        return ((image, table), labels) if kind == "nested" else (image, table, labels)

    return draw_both


def _torchvision_vit() -> nn.Module:
    model = torchvision.models.VisionTransformer(32, 16, 2, 2, 24, 48, num_classes=1)
    nn.init.normal_(model.heads.head.weight)  # zero without training
    return model


def _densenet() -> nn.Module:
    return torchvision.models.DenseNet(8, (2, 2, 2), 16, num_classes=2)


EXPORTED = (".pt2", ".onnx")

VISION = (
    _timm("resnet10t", "fc", 512, exports=EXPORTED),
    _timm("resnet10t", "fc", 1024, shown="resnet10t, global_pool=catavgmax", outputs=3, global_pool="catavgmax"),
    _timm("test_efficientnet", "classifier", 256),
    _timm("mobilenetv3_small_050", "classifier", 1024),
    _timm("regnetx_002", "head.fc", 368),
    _timm("resnetv2_18", "head.fc", 512),
    _timm("test_byobnet", "head.fc", 256),
    _timm("test_nfnet", "head.fc", 192),
    _timm("convnext_atto", "head.fc", 40, depths=(1, 1, 1, 1), dims=(16, 24, 32, 40)),
    _timm("vit_tiny_patch16_224", "head", 32, img_size=32, depth=2, embed_dim=32, num_heads=2),
    _timm("deit_tiny_distilled_patch16_224", "head+head_dist", 64, img_size=32, depth=2, embed_dim=32, num_heads=2),
    _timm("levit_128s", "head.linear+head_dist.linear", 768, size=64, img_size=64),
    _timm(
        "swin_tiny_patch4_window7_224",
        "head.fc",
        32,
        img_size=32,
        window_size=4,
        depths=(1, 1),
        embed_dim=16,
        num_heads=(2, 2),
    ),
    Architecture("MlpMixer", "timm", _mixer, draw_images(32), "head", 24),
    Architecture(
        "resnet18", "torchvision", lambda: torchvision.models.resnet18(num_classes=1), draw_images(32), "fc", 512
    ),
    Architecture("VGG", "torchvision", _vgg, draw_images(32), "classifier.3", 24),
    Architecture("squeezenet1_1", "torchvision", _squeezenet, draw_images(64), "classifier.1[mean]", 512),
    Architecture(
        "mobilenet_v2",
        "torchvision",
        lambda: torchvision.models.mobilenet_v2(num_classes=1, width_mult=0.35),
        draw_images(32),
        "classifier.1",
        1280,
    ),
    Architecture("DenseNet", "torchvision", _densenet, draw_images(32), "classifier", 32),
    Architecture(
        "shufflenet_v2_x0_5",
        "torchvision",
        lambda: torchvision.models.shufflenet_v2_x0_5(num_classes=1),
        draw_images(32),
        "fc",
        1024,
    ),
    Architecture("VisionTransformer", "torchvision", _torchvision_vit, draw_images(32), "heads.head", 24),
    Architecture(
        "depth of every pixel", "images", DepthNet, draw_images(8), "depth[all]", 8, exports=(".pt2", ".onnx")
    ),
    Architecture(
        "image and table, by position",
        "several inputs",
        ImageAndTable,
        _draw_image_and_table("tuple"),
        "fc",
        34,
        exports=EXPORTED,
    ),
    Architecture("image and table, by name", "several inputs", ImageAndTable, _draw_image_and_table("dict"), "fc", 34),
    Architecture("image and table, nested", "several inputs", ImageAndTable, _draw_image_and_table("nested"), "fc", 34),
)
