// Typed access to a YAML tree: every wrong thing becomes a problem with its place, and reading
// goes on.
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

    void add(Place place, std::string key, std::string what);
    bool empty() const { return problems_.empty(); }
    // Aliases can make any number of problems: past a bound they are dropped, and take() says so.
    bool full() const { return problems_.size() >= max; }
    // In the order of the file.
    std::vector<Problem> take();

 private:
    static constexpr std::size_t max = 1000;
    std::string file_;
    std::vector<Problem> problems_;
};

// A node, and how it is called: "exports[1].page_size".
struct YamlValue {
    const YamlNode* node;
    std::string path;
    Place place() const { return node->place; }
};

// Which scalars a value may be written as: a number or a truth value is not a quoted text.
enum class Scalar { any, plain };
enum class Outcome { absent, good, bad };

// The text of a scalar; anything else is reported.
std::optional<std::string_view> read_scalar(Report& report, const YamlValue& value, Scalar form);

struct Count {
    std::size_t max;
    std::size_t min = 0;
    std::string_view remedy = "";  // of an empty list, where there is a least
};
// The items of a list; anything else, and a list of too many or too few, is reported.
std::vector<YamlValue> read_list(Report& report, const YamlValue& value, Count count);

// A mapping whose unknown and duplicate keys, or being something else, have been reported.
class YamlMap {
 public:
    YamlMap(Report& report, const YamlValue& value, const std::vector<std::string_view>& known);

    const YamlValue& value() const { return value_; }
    std::string path_of(std::string_view key) const;
    std::optional<YamlValue> find(std::string_view key) const;
    // Reports that `key` is missing, unless that has been said of the whole mapping.
    void require(std::string_view key, std::string_view example) const;

 private:
    Report* report_;
    YamlValue value_;
    bool is_map_ = false;
    std::vector<std::pair<std::string_view, const YamlNode*>> values_;
};

}  // namespace gpunbd::config
