#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace gpunbd::server::admin {

// The query of a request's target: names and values. A name that is repeated or unknown is an
// error.
class Query {
 public:
    // As received, still percent-encoded.
    explicit Query(std::string_view text);

    // Each records an error if the value is invalid or missing.
    std::optional<std::string> text(const std::string& name);
    std::string required_text(const std::string& name);
    std::uint64_t count(const std::string& name, std::uint64_t least, std::uint64_t most,
                        std::uint64_t otherwise);
    // The first error, with the remedy. Call it last, because it also reports unknown names.
    std::optional<std::string> error() const;

 private:
    void set_error(const std::string& what);

    std::map<std::string, std::string> values_;
    std::map<std::string, bool> known_;
    std::optional<std::string> error_;
};

struct Target {
    std::string_view path;
    std::string_view query;
};
Target split_target(std::string_view target);

// The JSON object in the body of a request. A member that is missing or unknown is an error.
class Body {
 public:
    explicit Body(std::string_view text);

    // Each records an error if the member is invalid or missing.
    std::string text(const std::string& name);
    std::string text_or_null(const std::string& name);  // empty: null
    bool flag(const std::string& name);
    bool optional_flag(const std::string& name);  // false if it is missing
    std::uint64_t count(const std::string& name);
    // A number or a string, as text that the configuration parses; unset: null, or an error.
    std::optional<std::string> scalar(const std::string& name);
    Body object(const std::string& name);
    // Any object, as text for a reader of its own; empty: an error.
    std::string object_text(const std::string& name);
    // Records an error of a member.
    void set_error(const std::string& name, const std::string& what);
    // Takes over the error of an inner object.
    void join(const Body& inner);
    // The first error, with the remedy. Call it last, because it also reports unknown members.
    std::optional<std::string> error() const;

 private:
    Body(boost::json::object object, std::string prefix)
        : object_(std::move(object)), prefix_(std::move(prefix)) {}
    const boost::json::value* find(const std::string& name);
    const boost::json::object* find_object(const std::string& name);

    boost::json::object object_;
    std::string prefix_;  // of names: "rates."
    std::set<std::string> known_;
    std::optional<std::string> error_;
};

}  // namespace gpunbd::server::admin
