#include "server/tools/export/key_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <optional>
#include <string_view>

#include "config/devices/device_drivers.hpp"
#include "config/quote.hpp"
#include "config/schema.hpp"

namespace gpunbd::tools {
namespace {

using namespace config;
namespace json = boost::json;

constexpr std::string_view prefix = "exports[].";
constexpr std::string_view rule_prefix = "exports[].access[].";
constexpr std::string_view new_rule = "access[]";

// The texts of one flag. Flag refers to them, so they live as long as the program.
struct Texts {
    std::string name;
    std::string brief;
    std::string example;
};

std::string flag_name(std::string_view key) {
    std::string out = fmt::format("--{}", key);
    std::ranges::replace(out, '_', '-');
    std::ranges::replace(out, '.', '-');
    return out;
}

std::string_view argument_of(const KeyText& key) {
    if (!key.words.empty()) return "KIND";
    if (key.type == "Size") return "SIZE";
    if (key.type == "Integer") return "N";
    if (key.type == "Time") return "SECONDS";
    return "TEXT";
}

std::optional<std::string> set_in_scratch(std::string_view path, std::string_view text) {
    Options scratch;
    scratch.exports.emplace_back().access.emplace_back();
    return set_key(path, text, scratch);
}

std::string example_of(const KeyText& key) {
    if (!key.words.empty()) return std::string(key.words.back());
    if (key.path == "exports[].size") return "8G";
    if (key.path == "exports[].origin.nbd") return "nbd://host/image";
    if (key.type == "Size") return set_in_scratch(key.path, "4M") ? "4K" : "4M";
    if (key.type == "Integer") return set_in_scratch(key.path, "100") ? "4" : "100";
    if (key.type == "Time") return "10";
    return "'fast disk'";
}

// network=10.0.0.0/8,mode=read-only
std::optional<std::string> read_rule(std::string_view text, KeyValues& given) {
    given.emplace_back(new_rule, "");
    while (!text.empty()) {
        const std::string_view part = text.substr(0, text.find(','));
        text.remove_prefix(std::min(part.size() + 1, text.size()));
        const std::size_t equals = part.find('=');
        const std::string name(part.substr(0, equals));
        const std::string path = std::string(rule_prefix) + name;
        const auto known = std::ranges::find(all_keys(), path, &KeyText::path);
        if (equals == std::string_view::npos || known == all_keys().end()) {
            return fmt::format(
                "{} is no condition of a rule; write for example network=10.0.0.0/8,mode=read-only",
                in_quotes(part));
        }
        const std::string_view value = part.substr(equals + 1);
        if (auto wrong = set_in_scratch(path, value)) return fmt::format("{}: {}", name, *wrong);
        given.emplace_back(path.substr(prefix.size()), value);
    }
    return std::nullopt;
}

// "default: none"
std::string condition_of(const KeyText& key) {
    if (!key.fallback.starts_with("Default")) return "needed by the flags beside it";
    return fmt::format("d{}", key.fallback.substr(1));
}

Flag flag_for(const KeyText& key, std::string_view name, const Texts& texts, KeyValues& given) {
    const bool is_switch = key.type.starts_with("Boolean");  // some also have keys of their own
    Flag flag{.name = texts.name,
              .takes = is_switch ? std::string_view() : argument_of(key),
              .example = is_switch ? std::string_view() : std::string_view(texts.example),
              .brief = texts.brief,
              .words = key.words,
              .key = key.path};
    if (!is_switch) {
        flag.more = fmt::format("{}; {}.", key.range, condition_of(key));
    } else {
        flag.more = ".";
    }
    flag.store = [path = key.path, name = std::string(name), is_switch,
                  &given](std::string_view text) -> std::optional<std::string> {
        const std::string_view value = is_switch ? "true" : text;
        if (auto wrong = set_in_scratch(path, value)) return wrong;
        given.emplace_back(name, value);
        return std::nullopt;
    };
    return flag;
}

Flag device_flag(const KeyText& key, KeyValues& given) {
    return {
        .name = "--device",
        .takes = "ID",
        .example = example_device(),
        .brief = "Key devices",
        .more = fmt::format(": {}; repeat it for several. D{}.", device_forms(),
                            key.fallback.substr(1)),
        .called = "--devices",
        .key = key.path,
        .repeats = true,
        .store = [path = key.path, &given](std::string_view text) -> std::optional<std::string> {
            if (auto wrong = set_in_scratch(path, text)) return wrong;
            given.emplace_back("devices", text);
            return std::nullopt;
        }};
}

Flag access_flag(KeyValues& given) {
    return {.name = "--access",
            .takes = "RULE",
            .example = "network=10.0.0.0/8,mode=read-only",
            .brief = "Key access: a rule, as KEY=VALUE,KEY=VALUE",
            .more = "; repeat it for several. The first that matches a client decides.",
            .called = "--allow --acl",
            .repeats = true,
            .store = [&given](std::string_view text) { return read_rule(text, given); }};
}

// A number or a truth value is written plainly, as the reader of the configuration requires.
json::value as_json(const std::string& text) {
    if (text == "true" || text == "false") return text == "true";
    const bool digits = !text.empty() && text.size() < 19 && (text == "0" || text[0] != '0') &&
                        std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    if (digits) return json::value(std::stoull(text));
    return json::value(text);
}

void put(json::object& into, std::string_view path, const std::string& text) {
    const std::size_t dot = path.find('.');
    if (dot != std::string_view::npos) {
        json::value& inner = into[path.substr(0, dot)];
        if (!inner.is_object()) inner.emplace_object();
        return put(inner.get_object(), path.substr(dot + 1), text);
    }
    json::value& value = into[path];
    if (!value.is_object()) value = as_json(text);  // the keys of a mapping switch it on
}

}  // namespace

std::vector<Flag> export_key_flags(KeyValues& given) {
    static const std::vector<Texts> texts = [] {
        std::vector<Texts> out;
        for (const KeyText& key : all_keys()) {
            const std::string_view name =
                std::string_view(key.path).substr(std::min(prefix.size(), key.path.size()));
            const bool is_flag = key.path.starts_with(prefix) && !key.fallback.empty();
            out.push_back({flag_name(name), fmt::format("Key {}", name),
                           is_flag ? example_of(key) : std::string()});
        }
        return out;
    }();
    std::vector<Flag> out;
    for (std::size_t i = 0; i != all_keys().size(); ++i) {
        const KeyText& key = all_keys()[i];
        if (!key.path.starts_with(prefix) || key.path.starts_with(rule_prefix)) continue;
        const std::string_view name = std::string_view(key.path).substr(prefix.size());
        if (name == "devices") {
            out.push_back(device_flag(key, given));
        } else if (name == "access") {
            out.push_back(access_flag(given));
        } else if (name != "name" && !key.fallback.empty()) {  // a mapping has no value
            out.push_back(flag_for(key, name, texts[i], given));
        }
    }
    return out;
}

std::string export_json(const std::string& name, const KeyValues& given) {
    json::object out{{"name", name}};
    for (const auto& [key, text] : given) {
        if (key == new_rule) {
            json::value& rules = out["access"];
            if (!rules.is_array()) rules.emplace_array();
            rules.get_array().emplace_back(json::object());
        } else if (key.starts_with(new_rule)) {
            put(out["access"].get_array().back().get_object(), key.substr(new_rule.size() + 1),
                text);
        } else if (key == "devices") {
            json::value& devices = out[key];
            if (!devices.is_array()) devices.emplace_array();
            devices.get_array().emplace_back(text);
        } else {
            put(out, key, text);
        }
    }
    return json::serialize(out);
}

}  // namespace gpunbd::tools
