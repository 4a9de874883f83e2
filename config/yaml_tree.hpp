// Parses YAML text to a tree in which every key and value has its position. The tree is built from
// the events of yaml-cpp, because its nodes merge duplicate keys and expand any alias.
#pragma once

#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

// Counted from 1, columns in characters; 0: unknown.
struct Position {
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
    Position position;
    std::string text;                    // of a scalar
    bool plain = false;                  // a scalar without quotes and tag
    std::vector<const YamlNode*> items;  // of a sequence
    std::vector<Entry> entries;          // of a map, including duplicates
};

// An alias is a second pointer to the same node. The deque keeps these pointers valid.
struct YamlTree {
    std::deque<YamlNode> nodes;
    const YamlNode* root = nullptr;  // null: the text has no document
};

// Throws std::bad_alloc only. The nesting of the tree is bounded and without cycles.
std::variant<YamlTree, Problem> parse_yaml(const std::string& text, const std::string& name);

}  // namespace gpunbd::config
