// Typed access to a YAML tree: every wrong thing becomes a problem with its place, and reading
// goes on.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/options.hpp"
#include "config/rules.hpp"
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

// The items of a list; anything else, and a list of more than `max`, is reported.
std::vector<YamlValue> read_list(Report& report, const YamlValue& value, std::size_t max);

template <class T, class Target, class Rule>
Outcome read_value(Report& report, const YamlValue& value, Scalar form, Target& target, Rule rule) {
    const auto text = read_scalar(report, value, form);
    if (!text) return Outcome::bad;
    rules::Checked<T> checked = rule(*text);
    if (auto* wrong = std::get_if<rules::Wrong>(&checked)) {
        report.add(value.place(), value.path, std::move(wrong->what));
        return Outcome::bad;
    }
    target = static_cast<Target>(std::get<T>(std::move(checked)));
    return Outcome::good;
}

// A mapping whose unknown and duplicate keys, or being something else, have been reported.
class YamlMap {
 public:
    YamlMap(Report& report, const YamlValue& value, std::initializer_list<std::string_view> known);

    Place place() const { return place_; }
    std::string path_of(std::string_view key) const;
    std::optional<YamlValue> find(std::string_view key) const;
    // Leaves `target` as it is where the key is absent or its value is wrong.
    template <class Target, class Rule>
    Outcome read(std::string_view key, Scalar form, Target& target, Rule rule) const {
        using T = std::variant_alternative_t<0, decltype(rule(std::string_view()))>;
        const auto value = find(key);
        if (!value) return Outcome::absent;
        return read_value<T>(*report_, *value, form, target, rule);
    }
    void require(std::string_view key, Outcome outcome, std::string_view example) const;

 private:
    Report* report_;
    Place place_;
    std::string path_;
    bool is_map_ = false;
    std::vector<std::pair<std::string_view, const YamlNode*>> values_;
};

}  // namespace gpunbd::config
