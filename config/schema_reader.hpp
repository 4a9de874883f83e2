// The visitor of the table of keys that reads YAML. It reports errors and continues.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/quote.hpp"
#include "config/schema_visitors.hpp"
#include "config/yaml_reader.hpp"

namespace gpunbd::config {

// Collects the keys that a mapping may have.
struct Names : Visitor {
    std::vector<std::string_view> names;
    void value(std::string_view name, const auto&, const auto&, KeyInfo = {}) {
        names.push_back(name);
    }
    void list(std::string_view name, const auto&...) { names.push_back(name); }
    void section(std::string_view name, const auto&, KeyInfo = {}) { names.push_back(name); }
    void switched(std::string_view name, const auto&, KeyInfo = {}) { names.push_back(name); }
};

class Reader : public Visitor {
 public:
    static constexpr bool reads = true;
    // The value that must be unique among the items of a list, and its text for messages.
    struct Identity {
        std::string text;
        YamlValue value;
        std::string shown;
    };
    std::optional<Identity> identity;

    template <class Object>
    static std::optional<Identity> read(Report& report, const YamlValue& given, Object&& object) {
        Names names;
        visit(names, object);
        Reader reader(report, YamlMap(report, given, names.names));
        visit(reader, object);
        return given.node->kind == YamlNode::Kind::map ? std::move(reader.identity) : std::nullopt;
    }

    // An item of devices[].spill.
    static std::optional<Identity> read(Report& report, const YamlValue& given,
                                        SpillOptions& spill);

    template <class Member, class T>
    void value(std::string_view name, Member& member, const Kind<T>& kind, KeyInfo info = {}) {
        if (const auto given = find(name, info)) {
            outcomes_[name] = scalar(*given, member, kind) ? Outcome::good : Outcome::bad;
        }
    }
    template <class Object>
    void section(std::string_view name, Object&& object, KeyInfo = {}) {
        if (const auto given = find(name, {})) read(*report_, *given, object);
    }
    // A mapping enables it.
    template <class Object>
    void switched(std::string_view name, Object& object, KeyInfo = {}) {
        const auto given = find(name, {});
        if (!given) return;
        if (given->node->kind != YamlNode::Kind::map) {
            scalar(*given, object.enabled, boolean());
            return;
        }
        object.enabled = true;
        read(*report_, *given, object);
    }
    template <class Items>
    void list(std::string_view name, Items& out, Count count, KeyInfo info) {
        each(name, count, info,
             [&](const YamlValue& item) { return read(*report_, item, out.emplace_back()); });
    }
    void list(std::string_view name, std::vector<std::string>& out, Count count, KeyInfo info,
              const Kind<std::string>& kind) {
        each(name, count, info, [&](const YamlValue& item) -> std::optional<Identity> {
            std::string& text = out.emplace_back();
            if (!scalar(item, text, kind)) return std::nullopt;
            return Identity{text, item, in_quotes(text)};
        });
    }

    const YamlMap& map() const { return map_; }
    bool good(std::string_view key) const { return is(key, Outcome::good); }
    bool bad(std::string_view key) const { return is(key, Outcome::bad); }
    void add(std::string_view key, const std::string& what) {
        report_->add(map_.find(key)->position(), map_.path_of(key), what);
    }
    // For a key that is given in an item of a list.
    void add_to_item(std::string_view list, std::size_t index, std::string_view key,
                     const std::string& what) {
        const YamlNode& item = *map_.find(list)->node->items[index];
        for (const YamlNode::Entry& entry : item.entries) {
            if (entry.key->text != key) continue;
            report_->add(entry.value->position,
                         fmt::format("{}[{}].{}", map_.path_of(list), index, key), what);
            return;
        }
    }
    void identify(std::string_view key, const std::string& text, const std::string& shown) {
        if (good(key)) identity = {text, *map_.find(key), shown};
    }

 private:
    Reader(Report& report, YamlMap map) : report_(&report), map_(std::move(map)) {}

    bool is(std::string_view key, Outcome outcome) const {
        const auto found = outcomes_.find(key);
        return found != outcomes_.end() && found->second == outcome;
    }
    std::optional<YamlValue> find(std::string_view name, KeyInfo info) {
        auto given = map_.find(name);
        if (!given && !info.example.empty()) map_.require(name, info.example);
        return given;
    }
    template <class Member, class T>
    bool scalar(const YamlValue& given, Member& member, const Kind<T>& kind) {
        const auto text = read_scalar(*report_, given, kind.form);
        if (!text) return false;
        const auto wrong = assign(member, kind, *text);
        if (wrong) report_->add(given.position(), given.path, *wrong);
        return !wrong;
    }
    template <class ReadItem>
    void each(std::string_view name, Count count, KeyInfo info, ReadItem read_item) {
        const auto given = find(name, info);
        if (!given) return;
        const auto items = read_list(*report_, *given, count);
        std::map<std::string, int> lines;  // the first line of each
        for (const YamlValue& item : items) {
            if (report_->full()) return;
            const auto its = read_item(item);
            if (!its) continue;
            const Position position = its->value.position();
            const auto [first, added] = lines.emplace(its->text, position.line);
            if (added) continue;
            report_->add(
                position, its->value.path,
                fmt::format("{} is already in line {}; give each once", its->shown, first->second));
        }
    }

    Report* report_;
    YamlMap map_;
    std::map<std::string_view, Outcome> outcomes_;
};

}  // namespace gpunbd::config
