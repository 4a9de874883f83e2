// What goes through the table of keys: each visitor is told of every key of an object, with the
// value.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/schema.hpp"
#include "config/value_kinds.hpp"

namespace gpunbd::config {

// What holds without a key.
struct Without {
    std::string_view example = "";  // it must be given, for example so
    std::string_view words = "";    // where the default does not say so itself
};

template <class T>
struct Inside {
    using Type = T;
    static const T* of(const T& value) { return &value; }
};
template <class T>
struct Inside<std::optional<T>> {
    using Type = T;
    static const T* of(const std::optional<T>& value) { return value ? &*value : nullptr; }
};

// Returns what is wrong with the text.
template <class Member, class K>
std::optional<std::string> assign(Member& member, const K& kind, std::string_view text) {
    auto checked = kind.check(text);
    if (auto* wrong = std::get_if<rules::Wrong>(&checked)) return std::move(wrong->what);
    member =
        static_cast<typename Inside<Member>::Type>(std::get<typename K::Type>(std::move(checked)));
    return std::nullopt;
}

template <class Member, class K>
std::string text_of(const Member& member, const K& kind) {
    const auto* value = Inside<Member>::of(member);
    return value == nullptr ? "" : kind.text(static_cast<typename K::Type>(*value));
}

struct Visitor {
    static constexpr bool reads = false;
    static constexpr bool writes = false;
};

struct Names : Visitor {
    std::vector<std::string_view> names;
    void value(std::string_view name, const auto&, const auto&, Without = {}) {
        names.push_back(name);
    }
    void list(std::string_view name, const auto&...) { names.push_back(name); }
    void section(std::string_view name, const auto&) { names.push_back(name); }
};

class Reader : public Visitor {
 public:
    static constexpr bool reads = true;
    // What must differ among the items of a list, where it stands, and how it is called.
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

    template <class Member, class T>
    void value(std::string_view name, Member& member, const Kind<T>& kind, Without without = {}) {
        if (const auto given = find(name, without)) {
            outcomes_[name] = scalar(*given, member, kind) ? Outcome::good : Outcome::bad;
        }
    }
    template <class Object>
    void section(std::string_view name, Object&& object) {
        if (const auto given = find(name, {})) read(*report_, *given, object);
    }
    template <class Item>
    void list(std::string_view name, std::vector<Item>& out, Count count, Without without) {
        each(name, count, without,
             [&](const YamlValue& item) { return read(*report_, item, out.emplace_back()); });
    }
    void list(std::string_view name, std::vector<std::string>& out, Count count, Without without,
              const Kind<std::string>& kind) {
        each(name, count, without, [&](const YamlValue& item) -> std::optional<Identity> {
            std::string& text = out.emplace_back();
            if (!scalar(item, text, kind)) return std::nullopt;
            return Identity{text, item, in_quotes(text)};
        });
    }

    const YamlMap& map() const { return map_; }
    bool good(std::string_view key) const { return is(key, Outcome::good); }
    bool bad(std::string_view key) const { return is(key, Outcome::bad); }
    void add(std::string_view key, const std::string& what) {
        report_->add(map_.find(key)->place(), map_.path_of(key), what);
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
    std::optional<YamlValue> find(std::string_view name, Without without) {
        auto given = map_.find(name);
        if (!given && !without.example.empty()) map_.require(name, without.example);
        return given;
    }
    template <class Member, class T>
    bool scalar(const YamlValue& given, Member& member, const Kind<T>& kind) {
        const auto text = read_scalar(*report_, given, kind.form);
        if (!text) return false;
        const auto wrong = assign(member, kind, *text);
        if (wrong) report_->add(given.place(), given.path, *wrong);
        return !wrong;
    }
    template <class ReadItem>
    void each(std::string_view name, Count count, Without without, ReadItem read_item) {
        const auto given = find(name, without);
        if (!given) return;
        const auto items = read_list(*report_, *given, count);
        std::map<std::string, int> lines;  // where each was first seen
        for (const YamlValue& item : items) {
            if (report_->full()) return;
            const auto its = read_item(item);
            if (!its) continue;
            const Place place = its->value.place();
            const auto [first, added] = lines.emplace(its->text, place.line);
            if (added) continue;
            report_->add(
                place, its->value.path,
                fmt::format("{} is already in line {}; give each once", its->shown, first->second));
        }
    }

    Report* report_;
    YamlMap map_;
    std::map<std::string_view, Outcome> outcomes_;
};

// As YAML, line by line.
class Writer : public Visitor {
 public:
    static constexpr bool writes = true;

    template <class Object>
    static std::vector<std::string> lines_of(const Object& object) {
        Writer writer;
        visit(writer, object);
        return std::move(writer.lines_);
    }
    // What holds is told, not set.
    void comment(std::string_view name, std::string_view words) {
        lines_.push_back(fmt::format("# {}: {}", name, words));
    }
    template <class Member, class T>
    void value(std::string_view name, const Member& member, const Kind<T>& kind,
               Without without = {}) {
        const std::string text = text_of(member, kind);
        text.empty() ? comment(name, without.words) : line(name, text);
    }
    template <class Object>
    void section(std::string_view name, const Object& object) {
        lines_.push_back(fmt::format("{}:", name));
        indent(lines_of(object), "  ", "  ");
    }
    template <class Item>
    void list(std::string_view name, const std::vector<Item>& items, Count, Without without) {
        head(name, items.empty(), without);
        for (const Item& item : items) indent(lines_of(item), "  - ", "    ");
    }
    void list(std::string_view name, const std::vector<std::string>& items, Count, Without without,
              const Kind<std::string>& kind) {
        head(name, items.empty(), without);
        for (const std::string& item : items) lines_.push_back("  - " + kind.text(item));
    }

 private:
    void line(std::string_view name, std::string_view text) {
        lines_.push_back(fmt::format("{}: {}", name, text));
    }
    void head(std::string_view name, bool empty, Without without) {
        lines_.push_back(empty ? fmt::format("{}: []  # {}", name, without.words)
                               : fmt::format("{}:", name));
    }
    void indent(const std::vector<std::string>& lines, std::string_view first,
                std::string_view others) {
        for (const std::string& each : lines) {
            lines_.push_back(fmt::format("{}{}", &each == lines.data() ? first : others, each));
        }
    }

    std::vector<std::string> lines_;
};

// Sets the one value that `path` names.
struct Setter : Visitor {
    std::string_view path;
    std::string_view text;
    std::optional<std::string> wrong = {};
    bool found = false;

    template <class Member, class T>
    void value(std::string_view name, Member& member, const Kind<T>& kind, Without = {}) {
        if (path != name) return;
        found = true;
        wrong = assign(member, kind, text);
    }
    template <class Object>
    void section(std::string_view name, Object&& object, std::string_view joint = ".") {
        if (!path.starts_with(fmt::format("{}{}", name, joint))) return;
        const std::string_view all = path;
        path.remove_prefix(name.size() + joint.size());
        visit(*this, object);
        path = all;
    }
    template <class Item>
    void list(std::string_view name, std::vector<Item>& items, Count, Without) {
        if (!items.empty()) section(name, items.back(), "[].");
    }
    void list(std::string_view name, std::vector<std::string>& items, Count, Without without,
              const Kind<std::string>& kind) {
        if (path == name) value(name, items.emplace_back(), kind, without);
    }
};

// What people are told: of objects that hold their defaults.
struct Teller : Visitor {
    std::string prefix;
    std::vector<KeyText>& keys;

    static std::string fallback(const std::string& text, Without without) {
        if (!without.example.empty()) return "Must be given";
        return fmt::format("Default: {}", without.words.empty() ? text : without.words);
    }
    template <class Member, class T>
    void value(std::string_view name, const Member& member, const Kind<T>& kind,
               Without without = {}) {
        keys.push_back({fmt::format("{}{}", prefix, name), kind.type, kind.range,
                        fallback(text_of(member, kind), without), kind.words});
    }
    template <class Object>
    void section(std::string_view name, Object&& object) {
        keys.push_back({fmt::format("{}{}", prefix, name), "Mapping of the following", "", ""});
        below(fmt::format("{}{}.", prefix, name), object);
    }
    template <class Item>
    void list(std::string_view name, const std::vector<Item>&, Count count, Without without) {
        list(name, {}, count, without, {});
        below(fmt::format("{}{}[].", prefix, name), Item{});
    }
    void list(std::string_view name, const std::vector<std::string>&, Count count, Without without,
              const Kind<std::string>&) {
        const std::string least = count.min > 0 ? fmt::format("{} to", count.min) : "at most";
        keys.push_back({fmt::format("{}{}", prefix, name),
                        fmt::format("List of {} {}", least, count.max), "",
                        fallback("none", without)});
    }
    template <class Object>
    void below(std::string path, Object&& object) {
        Teller inner{{}, std::move(path), keys};
        visit(inner, object);
    }
};

}  // namespace gpunbd::config
