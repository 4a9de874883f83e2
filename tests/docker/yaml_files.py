"""Reads the YAML files below docker/, with the default values of Compose variables."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402

try:
    import yaml
except ImportError:
    server.skip('the Python module yaml is missing (python3-yaml, for /usr/bin/python3; ./dev setup installs it)')

FOLDER = os.path.join(server.ROOT, 'docker')


def text_of(name):
    with open(os.path.join(FOLDER, name), encoding='utf-8') as file:
        return file.read()


def documents(name):
    return list(yaml.safe_load_all(text_of(name)))


def composed(name):
    """A Compose file as if no variable were set."""
    text = re.sub(r'\$\{\w+:-([^}]*)\}', r'\1', text_of(name))
    return yaml.safe_load(text.replace('$$', '$'))
