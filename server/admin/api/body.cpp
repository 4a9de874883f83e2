#include "server/admin/api/body.hpp"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <cmath>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

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
    json::error_code error;
    json::value value = json::parse({text.data(), text.size()}, error);
    if (error || !value.is_object()) {
        wrong_ = error ? fmt::format("the body is no JSON: {}", error.message())
                       : "the body is no JSON object";
        return;
    }
    object_ = std::move(value.get_object());
}

std::string Body::text(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return std::string(std::string_view(value->get_string()));
    remember(name, "is no string");
    return {};
}

bool Body::flag(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return false;
    if (!value->is_bool()) remember(name, "is neither true nor false");
    return value->is_bool() && value->get_bool();
}

std::uint64_t Body::count(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return 0;
    const auto number = natural(*value);
    if (!number) remember(name, "is no integer from 0 on");
    return number.value_or(0);
}

std::optional<std::uint64_t> Body::rate(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    const auto number = natural(*value);
    if (!number || *number == 0) remember(name, "is no integer from 1 on, and not null");
    return number;
}

double Body::duration(const std::string& name) {
    const json::value* const value = find(name);
    if (value == nullptr) return 0;
    if (value->is_number()) {
        const double seconds = value->to_number<double>();
        if (std::isfinite(seconds) && seconds >= 0) return seconds;
    }
    remember(name, "is no number of seconds from 0 on");
    return 0;
}

Body Body::object(const std::string& name) {
    const json::value* const value = find(name);
    const bool is_one = value != nullptr && value->is_object();
    if (value != nullptr && !is_one) remember(name, "is no JSON object");
    return {is_one ? value->get_object() : json::object(), prefix_ + name + "."};
}

void Body::join(const Body& inner) {
    if (!wrong_) wrong_ = inner.wrong();
}

std::optional<std::string> Body::wrong() const {
    if (wrong_) return wrong_;
    for (const auto& member : object_) {
        const std::string name(std::string_view(member.key()));
        if (asked_.contains(name)) continue;
        std::string known;
        for (const std::string& each : asked_) known += (known.empty() ? "" : ", ") + each;
        return fmt::format("{}: there is no such member; there is {}",
                           config::in_quotes(prefix_ + name), known);
    }
    return std::nullopt;
}

const json::value* Body::find(const std::string& name) {
    asked_.insert(name);
    const json::value* const value = object_.if_contains(name);
    if (value == nullptr) remember(name, "is missing");
    return value;
}

void Body::remember(const std::string& name, const std::string& what) {
    if (!wrong_) wrong_ = fmt::format("{}{}: {}", prefix_, name, what);
}

}  // namespace gpunbd::server::admin
