// Typed access to a YAML tree. Every error is reported with its position, and reading continues.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/options.hpp"
#include "config/yaml_tree.hpp"

namespace gpunbd::config {

class Report {
 public:
    explicit Report(std::string file) : file_(std::move(file)) {}

    void add(Position position, std::string key, std::string what);
    bool empty() const { return problems_.empty(); }
    // Aliases can cause any number of problems. Above a limit they are dropped; take() adds a note.
    bool full() const { return problems_.size() >= max; }
    // In the order of the file.
    std::vector<Problem> take();

 private:
    static constexpr std::size_t max = 1000;
    std::string file_;
    std::vector<Problem> problems_;
};

// A node and its path: "exports[1].page_size".
struct YamlValue {
    const YamlNode* node;
    std::string path;
    Position position() const { return node->position; }
};

// Whether a value may be quoted: numbers and booleans must be plain.
enum class Scalar { any, plain };
enum class Outcome { absent, good, bad };

// The text of a scalar; reports other nodes.
std::optional<std::string_view> read_scalar(Report& report, const YamlValue& value, Scalar form);

struct Count {
    std::size_t max;
    std::size_t min = 0;
    std::string_view remedy = "";  // for an empty list, if `min` is set
};
// The items of a list; reports other nodes, and lists with too few or too many items.
std::vector<YamlValue> read_list(Report& report, const YamlValue& value, Count count);

// A mapping. The constructor reports other nodes, and unknown and duplicate keys.
class YamlMap {
 public:
    YamlMap(Report& report, const YamlValue& value, const std::vector<std::string_view>& known);

    const YamlValue& value() const { return value_; }
    std::string path_of(std::string_view key) const;
    std::optional<YamlValue> find(std::string_view key) const;
    // The known keys that are given, in the order of the file.
    std::vector<std::string_view> keys() const;
    // Reports a missing key, unless the whole mapping was reported.
    void require(std::string_view key, std::string_view example) const;

 private:
    Report* report_;
    YamlValue value_;
    bool is_map_ = false;
    std::vector<std::pair<std::string_view, const YamlNode*>> values_;
};

}  // namespace gpunbd::config
