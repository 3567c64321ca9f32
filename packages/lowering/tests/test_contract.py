"""Every name of torch that the package spells is there, private ones too."""

from intarsia_testkit.torch_contract import check_torch_names


def test_torch_has_what_the_package_uses():
    check_torch_names("intarsia_lowering")
