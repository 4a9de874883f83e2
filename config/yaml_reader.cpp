#include "config/yaml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "config/quote.hpp"
#include "config/rules.hpp"

namespace gpunbd::config {
namespace {

std::string kind_of(const YamlNode& node) {
    switch (node.kind) {
        case YamlNode::Kind::null:
            return "nothing";
        case YamlNode::Kind::scalar:
            return "the text " + in_quotes(node.text);
        case YamlNode::Kind::sequence:
            return "a list";
        case YamlNode::Kind::map:
            return "a mapping";
    }
    return {};
}

std::string expected(std::string_view wanted, const YamlNode& node) {
    return fmt::format("expected {}, found {}", wanted, kind_of(node));
}

}  // namespace

void Report::add(Position position, std::string key, std::string what) {
    if (full()) return;
    problems_.push_back({file_, position.line, position.column, std::move(key), std::move(what)});
}

std::vector<Problem> Report::take() {
    std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
        return std::tie(a.line, a.column) < std::tie(b.line, b.column);
    });
    if (full()) problems_.push_back({file_, 0, 0, "", "too many problems; the rest is not shown"});
    return std::move(problems_);
}

std::optional<std::string_view> read_scalar(Report& report, const YamlValue& value, Scalar form) {
    const YamlNode& node = *value.node;
    if (node.kind != YamlNode::Kind::scalar) {
        const bool null = node.kind == YamlNode::Kind::null;
        report.add(value.position(), value.path,
                   null ? "has no value; give it one, or leave the key out"
                        : expected("a single value", node) + "; write it without brackets or '- '");
        return std::nullopt;
    }
    if (form == Scalar::plain && !node.plain) {
        report.add(
            value.position(), value.path,
            fmt::format("{} is quoted or tagged, so it is text; write it without quotes or tag",
                        in_quotes(node.text)));
        return std::nullopt;
    }
    return node.text;
}

std::vector<YamlValue> read_list(Report& report, const YamlValue& value, Count count) {
    std::vector<YamlValue> items;
    const YamlNode& node = *value.node;
    if (node.kind != YamlNode::Kind::sequence) {
        report.add(value.position(), value.path,
                   expected("a list", node) + "; write [a, b], or lines that start with '- '");
        return items;
    }
    if (node.items.size() < count.min) {
        report.add(value.position(), value.path, fmt::format("is empty; {}", count.remedy));
    }
    if (node.items.size() > count.max) {
        report.add(
            value.position(), value.path,
            fmt::format("has {} items; at most {} are allowed", node.items.size(), count.max));
        return items;
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
        items.push_back({node.items[i], fmt::format("{}[{}]", value.path, i)});
    }
    return items;
}

YamlMap::YamlMap(Report& report, const YamlValue& value, const std::vector<std::string_view>& known)
    : report_(&report), value_(value) {
    const YamlNode& node = *value.node;
    const std::string names = fmt::format("{}", fmt::join(known, ", "));
    if (node.kind != YamlNode::Kind::map) {
        const bool glued = node.kind == YamlNode::Kind::scalar && node.plain &&
                           node.text.find(':') != std::string::npos;
        report.add(value.position(), value.path,
                   expected("a mapping", node) + (glued ? "; write a space behind the ':'"
                                                        : fmt::format("; its keys are {}", names)));
        return;
    }
    is_map_ = true;
    std::vector<std::pair<std::string_view, Position>> seen;
    for (const YamlNode::Entry& entry : node.entries) {
        if (report.full()) return;
        if (entry.key->kind != YamlNode::Kind::scalar) {
            report.add(entry.key->position, value.path,
                       expected("a key", *entry.key) + fmt::format("; known here are {}", names));
            continue;
        }
        const std::string_view key = entry.key->text;
        const auto match = std::find(known.begin(), known.end(), key);
        if (match == known.end()) {
            const std::string_view meant = rules::nearest(key, known);
            const std::string remedy = meant.empty() ? fmt::format("known here are {}", names)
                                                     : fmt::format("did you mean {}?", meant);
            const std::string shown = in_quotes(key);  // clipped and escaped: it can be anything
            report.add(entry.key->position, path_of(shown.substr(1, shown.size() - 2)),
                       fmt::format("unknown key; {}", remedy));
            continue;
        }
        const auto twin = std::find_if(seen.begin(), seen.end(), [key](const auto& known_key) {
            return known_key.first == key;
        });
        if (twin != seen.end()) {
            report.add(
                entry.key->position, path_of(key),
                fmt::format("is given twice, first in line {}; keep one", twin->second.line));
            continue;
        }
        seen.emplace_back(key, entry.key->position);
        values_.emplace_back(key, entry.value);
    }
}

std::string YamlMap::path_of(std::string_view key) const {
    return value_.path.empty() ? std::string(key) : fmt::format("{}.{}", value_.path, key);
}

std::optional<YamlValue> YamlMap::find(std::string_view key) const {
    for (const auto& [name, node] : values_) {
        if (name == key) return YamlValue{node, path_of(key)};
    }
    return std::nullopt;
}

std::vector<std::string_view> YamlMap::keys() const {
    std::vector<std::string_view> out;
    out.reserve(values_.size());
    for (const auto& [name, node] : values_) out.push_back(name);
    return out;
}

void YamlMap::require(std::string_view key, std::string_view example) const {
    if (!is_map_) return;
    report_->add(value_.position(), path_of(key),
                 fmt::format("is missing; write for example {}", example));
}

}  // namespace gpunbd::config
