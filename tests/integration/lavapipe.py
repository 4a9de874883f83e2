"""Vulkan's driver on the CPU (lavapipe of Mesa), with validation layers."""
import glob
import os

VALIDATION = 'VK_LAYER_KHRONOS_validation'
VALIDATION_FILE = '/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json'
DISCRETE = 'VK_LAYER_GPUNBD_discrete'  # discrete_layer.cpp
REPORTS = ('VUID', 'Validation', 'UNASSIGNED')  # in what the validation layers print


def use(discrete_folder=None):
    """Makes it `vulkan:0`, and the only device of Vulkan, for children of this process. Returns the reason if it cannot
    be used. With the folder of the discrete layer it looks like a GPU with memory of its own."""
    if os.environ.get('GPUNBD_SANITIZE'):
        return 'the Vulkan driver on the CPU leaks memory, which the sanitizer reports'
    drivers = glob.glob('/usr/share/vulkan/icd.d/lvp_icd.*json')
    layers = []
    if os.path.exists(VALIDATION_FILE):
        layers.append(VALIDATION)
    else:
        print(f'{VALIDATION} is not installed (vulkan-validationlayers)')
    if discrete_folder:
        assert os.path.isdir(discrete_folder), f'the layers are not built: there is no {discrete_folder}'
        os.environ['VK_ADD_LAYER_PATH'] = discrete_folder
        layers.append(DISCRETE)
    os.environ.update(VK_DRIVER_FILES=':'.join(drivers), VK_INSTANCE_LAYERS=':'.join(layers))
    return '' if drivers else 'there is no Vulkan driver on the CPU (mesa-vulkan-drivers)'
