// YAML text as a plain tree in which every key and value knows its place. It is built from
// yaml-cpp's events, not from its nodes, because those merge duplicate keys and follow any alias.
#pragma once

#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

// From 1, columns in characters; 0: unknown.
struct Place {
    int line = 0;
    int column = 0;
};

struct YamlNode {
    enum class Kind { null, scalar, sequence, map };
    struct Entry {
        const YamlNode* key;
        const YamlNode* value;
    };
    Kind kind = Kind::null;
    Place place;
    std::string text;                    // of a scalar
    bool plain = false;                  // a scalar with neither quotes nor a tag
    std::vector<const YamlNode*> items;  // of a sequence
    std::vector<Entry> entries;          // of a map, duplicates included
};

// An alias is a second pointer to the same node. A deque, so that nodes stay where they are.
struct YamlTree {
    std::deque<YamlNode> nodes;
    const YamlNode* root = nullptr;  // null: the text holds no document
};

// Throws nothing but std::bad_alloc. Whatever the text, the nesting is bounded and free of cycles.
std::variant<YamlTree, Problem> parse_yaml(const std::string& text, const std::string& name);

}  // namespace gpunbd::config
