#include "server/admin/api/body.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

namespace {

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// As in HTML forms, '+' is a space.
std::optional<std::string> decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i] == '+' ? ' ' : text[i];
            continue;
        }
        if (text.size() - i < 3) return std::nullopt;
        const int high = hex_digit(text[i + 1]);
        const int low = hex_digit(text[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

}  // namespace

Target split_target(std::string_view target) {
    const std::size_t mark = target.find('?');
    if (mark == std::string_view::npos) return {.path = target, .query = {}};
    return {.path = target.substr(0, mark), .query = target.substr(mark + 1)};
}

Query::Query(std::string_view text) {
    while (!text.empty()) {
        const std::string_view each = text.substr(0, text.find('&'));
        text.remove_prefix(std::min(each.size() + 1, text.size()));
        const std::size_t equals = each.find('=');
        if (equals == std::string_view::npos) {
            set_error(fmt::format("{}: has no value; write NAME=VALUE", config::in_quotes(each)));
            continue;
        }
        const auto name = decoded(each.substr(0, equals));
        const auto value = decoded(each.substr(equals + 1));
        if (!name || !value) {
            set_error(fmt::format("{}: % must be followed by two hexadecimal digits",
                                  config::in_quotes(each)));
        } else if (!values_.emplace(*name, *value).second) {
            set_error(fmt::format("{}: is given twice", config::in_quotes(*name)));
        }
    }
}

std::optional<std::string> Query::text(const std::string& name) {
    known_[name] = true;
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    return found->second;
}

std::string Query::required_text(const std::string& name) {
    auto value = text(name);
    if (!value) set_error(fmt::format("{0}: is missing; add {0}=VALUE to the query", name));
    return value.value_or("");
}

std::uint64_t Query::count(const std::string& name, std::uint64_t least, std::uint64_t most,
                           std::uint64_t otherwise) {
    const auto value = text(name);
    if (!value) return otherwise;
    std::uint64_t number = 0;
    const char* const end = value->data() + value->size();
    const auto [stopped, failure] = std::from_chars(value->data(), end, number);
    if (failure == std::errc() && stopped == end && number >= least && number <= most)
        return number;
    set_error(fmt::format("{}: {} is not an integer from {} to {}", name, config::in_quotes(*value),
                          least, most));
    return otherwise;
}

std::optional<std::string> Query::error() const {
    if (error_) return error_;
    for (const auto& [name, value] : values_) {
        if (known_.contains(name)) continue;
        std::string known;
        for (const auto& each : known_) known += (known.empty() ? "" : ", ") + each.first;
        return fmt::format(
            "{}: unknown parameter; {}", config::in_quotes(name),
            known.empty() ? "this path has no parameters" : "known parameters: " + known);
    }
    return std::nullopt;
}

void Query::set_error(const std::string& what) {
    if (!error_) error_ = what;
}

namespace json = boost::json;

namespace {

std::optional<std::uint64_t> natural(const json::value& value) {
    if (value.is_uint64()) return value.get_uint64();
    if (value.is_int64() && value.get_int64() >= 0) {
        return static_cast<std::uint64_t>(value.get_int64());
    }
    return std::nullopt;
}

}  // namespace

Body::Body(std::string_view text) {
    json::error_code failure;
    json::value value = json::parse({text.data(), text.size()}, failure);
    if (failure || !value.is_object()) {
        error_ = failure ? fmt::format("the body is not JSON: {}", failure.message())
                         : "the body is not a JSON object";
        return;
    }
    object_ = std::move(value.get_object());
}

std::string Body::text(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return std::string(std::string_view(value->get_string()));
    set_error(name, "is not a string");
    return {};
}

std::string Body::text_or_null(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr || value->is_null()) return {};
    return text(name);
}

bool Body::flag(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return false;
    if (!value->is_bool()) set_error(name, "is not true or false");
    return value->is_bool() && value->get_bool();
}

bool Body::optional_flag(const std::string& name) {
    known_.insert(name);
    return object_.contains(name) && flag(name);
}

std::uint64_t Body::count(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return 0;
    const auto number = natural(*value);
    if (!number) set_error(name, "is not a non-negative integer");
    return number.value_or(0);
}

std::optional<std::string> Body::scalar(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    if (value->is_string()) return std::string(std::string_view(value->get_string()));
    if (value->is_uint64()) return std::to_string(value->get_uint64());
    if (value->is_int64()) return std::to_string(value->get_int64());
    // Responses of the API write some integers as doubles.
    constexpr double exact = 9e15;
    if (value->is_double() && std::abs(value->get_double()) < exact &&
        std::trunc(value->get_double()) == value->get_double()) {
        return std::to_string(static_cast<std::int64_t>(value->get_double()));
    }
    set_error(name, "is not an integer or a string");
    return std::nullopt;
}

const json::object* Body::find_object(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return nullptr;
    if (!value->is_object()) set_error(name, "is not a JSON object");
    return value->if_object();
}

Body Body::object(const std::string& name) {
    const json::object* const object = find_object(name);
    return {object == nullptr ? json::object() : *object, prefix_ + name + "."};
}

std::string Body::object_text(const std::string& name) {
    const json::object* const object = find_object(name);
    return object == nullptr ? std::string() : json::serialize(*object);
}

void Body::join(const Body& inner) {
    if (!error_) error_ = inner.error();
}

std::optional<std::string> Body::error() const {
    if (error_) return error_;
    for (const auto& member : object_) {
        const std::string name(std::string_view(member.key()));
        if (known_.contains(name)) continue;
        std::string known;
        for (const std::string& each : known_) known += (known.empty() ? "" : ", ") + each;
        return fmt::format("{}: unknown member; known members: {}",
                           config::in_quotes(prefix_ + name), known);
    }
    return std::nullopt;
}

const json::value* Body::find(const std::string& name) {
    known_.insert(name);
    const json::value* const value = object_.if_contains(name);
    if (value == nullptr) set_error(name, "is missing");
    return value;
}

void Body::set_error(const std::string& name, const std::string& what) {
    if (!error_) error_ = fmt::format("{}{}: {}", prefix_, name, what);
}

}  // namespace gpunbd::server::admin
