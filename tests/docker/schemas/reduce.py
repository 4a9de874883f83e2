#!/usr/bin/env python3
"""Writes kubernetes.json: the published schema of the kinds that docker/kubernetes/ uses, as JSON Schema.

usage: reduce.py FOLDER >kubernetes.json

FOLDER is the unpacked npm package @kubernetes/client-node, which the Kubernetes project generates from the OpenAPI
description of each release. It contains names, types and required keys. Unknown keys are errors in the result."""
import glob
import json
import os
import re
import sys

KINDS = ('ConfigMap', 'DaemonSet', 'NetworkPolicy', 'Service', 'StatefulSet')
PLAIN = {'string': {'type': 'string'}, 'boolean': {'type': 'boolean'}, 'Date': {'type': 'string'}, 'any': {},
         'IntOrString': {'type': ['integer', 'string']}}


def text_of(*path):
    with open(os.path.join(*path), encoding='utf-8') as file:
        return file.read()


def schema_of(name, form, needed):
    """The schema of a TypeScript type. Appends the definitions that it refers to to `needed`."""
    if name in PLAIN:
        return PLAIN[name]
    if name == 'number':
        return {'type': 'number' if form == 'double' else 'integer'}
    if match := re.fullmatch(r'Array<(.*)>', name):
        return {'type': 'array', 'items': schema_of(match[1], form, needed)}
    if match := re.fullmatch(r'\{ \[key: string\]: (.*); \}', name):
        return {'type': 'object', 'additionalProperties': schema_of(match[1], form, needed)}
    needed.append(name)
    return {'$ref': f'#/definitions/{name}'}


def definition(models, name, needed):
    attributes = json.loads(re.search(r'attributeTypeMap = (\[.*?\n\]);', text_of(models, name + '.js'), re.DOTALL)[1])
    required = set(re.findall(r"^    '(\w+)': ", text_of(models, name + '.d.ts'), re.MULTILINE))
    out = {'type': 'object', 'additionalProperties': False}
    if names := sorted(each['baseName'] for each in attributes if each['name'] in required):
        out['required'] = names
    out['properties'] = {each['baseName']: schema_of(each['type'], each['format'], needed) for each in attributes}
    return out


def kinds_of(apis):
    """{'apps/v1 DaemonSet': 'V1DaemonSet'}, from the API paths that create objects."""
    out = {}
    for path in glob.glob(os.path.join(apis, '*V1Api.js')):
        for kind, version in re.findall(r"createNamespaced(\w+)\(.*?localVarPath = '/apis?/(.*?)/namespaces", text_of(path), re.DOTALL):
            if kind in KINDS:
                out[f'{version} {kind}'] = f'V1{kind}'
    return out


def main(folder):
    generated = os.path.join(folder, 'dist/gen')
    kinds = kinds_of(os.path.join(generated, 'apis'))
    needed, definitions = list(kinds.values()), {}
    while needed:
        name = needed.pop()
        if name not in definitions:
            definitions[name] = definition(os.path.join(generated, 'models'), name, needed)
    package = json.loads(text_of(folder, 'package.json'))
    release = re.search(r'OpenAPI spec version: release-(\S+)', text_of(generated, 'models/V1Service.js'))[1]
    comment = (f'Kubernetes {release}, from {package["name"]} {package["version"]}, Copyright The Kubernetes Authors, '
               f'{package["license"]}; reduced by reduce.py to the definitions that docker/kubernetes/ uses')
    # One definition on each line, for readable diffs.
    lines = [f'{json.dumps(name)}: {json.dumps(definitions[name], sort_keys=True)}' for name in sorted(definitions)]
    print('{"$schema": "http://json-schema.org/draft-07/schema#",\n"$comment": %s,\n"kinds": %s,\n"definitions": {\n%s\n}}' %
          (json.dumps(comment), json.dumps(kinds, sort_keys=True), ',\n'.join(lines)))


main(*sys.argv[1:])
