// The visitors of the table of keys. visit() calls them with each key of an object and its value.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/schema.hpp"
#include "config/value_kinds.hpp"

namespace gpunbd::config {

// What the types do not express about a key.
struct KeyInfo {
    std::string_view example = "";  // of a key that must be given
    std::string_view words = "";    // the default, if its value does not express it
    // The rest of its entry in gpunbd.yaml(5) after type and range, in mdoc.
    std::string_view about = ".";
};

template <class T>
struct Unwrapped {
    using Type = T;
    static const T* of(const T& value) { return &value; }
};
template <class T>
struct Unwrapped<std::optional<T>> {
    using Type = T;
    static const T* of(const std::optional<T>& value) { return value ? &*value : nullptr; }
};

// Returns an error, if any.
template <class Member, class K>
std::optional<std::string> assign(Member& member, const K& kind, std::string_view text) {
    auto checked = kind.check(text);
    if (auto* wrong = std::get_if<rules::Wrong>(&checked)) return std::move(wrong->what);
    member = static_cast<typename Unwrapped<Member>::Type>(
        std::get<typename K::Type>(std::move(checked)));
    return std::nullopt;
}

template <class Member, class K>
std::string text_of(const Member& member, const K& kind) {
    const auto* value = Unwrapped<Member>::of(member);
    return value == nullptr ? "" : kind.text(static_cast<typename K::Type>(*value));
}

struct Visitor {
    static constexpr bool reads = false;
    static constexpr bool writes = false;
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
    // Writes a comment instead of a value.
    void comment(std::string_view name, std::string_view words) {
        lines_.push_back(fmt::format("# {}: {}", name, words));
    }
    // Writes comments instead of the values of these keys, which follow.
    void leave_out(std::span<const std::string_view> names, std::string_view words) {
        left_out_ = names;
        left_out_words_ = words;
    }
    template <class Member, class T>
    void value(std::string_view name, const Member& member, const Kind<T>& kind,
               KeyInfo info = {}) {
        if (is_left_out(name)) return comment(name, left_out_words_);
        const std::string text = text_of(member, kind);
        text.empty() ? comment(name, info.words) : line(name, text);
    }
    template <class Object>
    void section(std::string_view name, const Object& object, KeyInfo = {}) {
        lines_.push_back(fmt::format("{}:", name));
        indent(lines_of(object), "  ", "  ");
    }
    // A mapping with a member `enabled`, or a boolean in place of the mapping.
    template <class Object>
    void switched(std::string_view name, const Object& object, KeyInfo = {}) {
        if (is_left_out(name)) return comment(name, left_out_words_);
        if (object.enabled && object != Object{.enabled = true}) return section(name, object);
        line(name, object.enabled ? "true" : "false");
    }
    template <class Items>
    void list(std::string_view name, const Items& items, Count count, KeyInfo info) {
        if (items.empty() && count.min > 0) return comment(name, info.words);
        head(name, items.empty(), info);
        for (const auto& item : items) indent(lines_of(item), "  - ", "    ");
    }
    void list(std::string_view name, const std::vector<std::string>& items, Count, KeyInfo info,
              const Kind<std::string>& kind) {
        if (is_left_out(name)) return comment(name, left_out_words_);
        head(name, items.empty(), info);
        for (const std::string& item : items) lines_.push_back("  - " + kind.text(item));
    }

 private:
    void line(std::string_view name, std::string_view text) {
        lines_.push_back(fmt::format("{}: {}", name, text));
    }
    void head(std::string_view name, bool empty, KeyInfo info) {
        lines_.push_back(empty ? fmt::format("{}: []  # {}", name, info.words)
                               : fmt::format("{}:", name));
    }
    void indent(const std::vector<std::string>& lines, std::string_view first,
                std::string_view others) {
        for (const std::string& each : lines) {
            lines_.push_back(fmt::format("{}{}", &each == lines.data() ? first : others, each));
        }
    }

    bool is_left_out(std::string_view name) const {
        return std::ranges::find(left_out_, name) != left_out_.end();
    }

    std::vector<std::string> lines_;
    std::span<const std::string_view> left_out_;
    std::string_view left_out_words_;
};

// Sets the one value that `path` names.
struct Setter : Visitor {
    std::string_view path;
    std::string_view text;
    std::optional<std::string> wrong = {};
    bool found = false;

    template <class Member, class T>
    void value(std::string_view name, Member& member, const Kind<T>& kind, KeyInfo = {}) {
        if (path != name) return;
        found = true;
        wrong = assign(member, kind, text);
    }
    template <class Object>
    void section(std::string_view name, Object&& object, KeyInfo = {}) {
        enter(name, object, ".");
    }
    template <class Object>
    void switched(std::string_view name, Object& object, KeyInfo = {}) {
        value(name, object.enabled, boolean());
        enter(name, object, ".");
    }
    template <class Object>
    void enter(std::string_view name, Object&& object, std::string_view joint) {
        if (!path.starts_with(fmt::format("{}{}", name, joint))) return;
        const std::string_view all = path;
        path.remove_prefix(name.size() + joint.size());
        visit(*this, object);
        path = all;
    }
    template <class Items>
    void list(std::string_view name, Items& items, Count, KeyInfo) {
        if (!items.empty()) enter(name, items.back(), "[].");
    }
    void list(std::string_view name, std::vector<std::string>& items, Count, KeyInfo info,
              const Kind<std::string>& kind) {
        if (path == name) value(name, items.emplace_back(), kind, info);
    }
};

// Lists the descriptions of the keys, from objects with default values.
struct KeyLister : Visitor {
    std::string prefix;
    std::vector<KeyText>& keys;

    static std::string fallback(const std::string& text, KeyInfo info) {
        if (!info.example.empty()) return "Must be given";
        return fmt::format("Default: {}", info.words.empty() ? text : info.words);
    }
    template <class Member, class T>
    void value(std::string_view name, const Member& member, const Kind<T>& kind,
               KeyInfo info = {}) {
        keys.push_back({fmt::format("{}{}", prefix, name), kind.type, kind.range,
                        fallback(text_of(member, kind), info), kind.words,
                        std::string(info.about)});
    }
    template <class Object>
    void section(std::string_view name, Object&& object, KeyInfo info = {}) {
        keys.push_back({fmt::format("{}{}", prefix, name),
                        "Mapping of the following",
                        "",
                        "",
                        {},
                        std::string(info.about)});
        below(fmt::format("{}{}.", prefix, name), object);
    }
    template <class Object>
    void switched(std::string_view name, const Object& object, KeyInfo info = {}) {
        keys.push_back({fmt::format("{}{}", prefix, name),
                        "Boolean, or mapping of the following",
                        "",
                        "Default: false",
                        {},
                        std::string(info.about)});
        below(fmt::format("{}{}.", prefix, name), object);
    }
    template <class Items>
    void list(std::string_view name, const Items&, Count count, KeyInfo info) {
        list(name, {}, count, info, {});
        below(fmt::format("{}{}[].", prefix, name), typename Items::value_type{});
    }
    void list(std::string_view name, const std::vector<std::string>&, Count count, KeyInfo info,
              const Kind<std::string>&) {
        const std::string least = count.min > 0 ? fmt::format("{} to", count.min) : "at most";
        keys.push_back({fmt::format("{}{}", prefix, name),
                        fmt::format("List of {} {}", least, count.max),
                        "",
                        fallback("none", info),
                        {},
                        std::string(info.about)});
    }
    template <class Object>
    void below(std::string path, Object&& object) {
        KeyLister inner{{}, std::move(path), keys};
        visit(inner, object);
    }
};

}  // namespace gpunbd::config
