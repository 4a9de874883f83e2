// The JSON object in the body of a request: the members that are asked for, all of them, and no
// others.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace gpunbd::server::admin {

class Body {
 public:
    // Reads all of it.
    explicit Body(std::string_view text);

    // Those that are wrong or missing leave their mark.
    std::string text(const std::string& name);
    bool flag(const std::string& name);
    std::uint64_t count(const std::string& name);
    std::optional<std::uint64_t> rate(const std::string& name);  // unset: null
    double duration(const std::string& name);
    Body object(const std::string& name);
    // Takes what is wrong with an inner one, too.
    void join(const Body& inner);
    // After all have been asked for: the first thing that is wrong, with what would be right.
    std::optional<std::string> wrong() const;

 private:
    Body(boost::json::object object, std::string prefix)
        : object_(std::move(object)), prefix_(std::move(prefix)) {}
    const boost::json::value* find(const std::string& name);
    void remember(const std::string& name, const std::string& what);

    boost::json::object object_;
    std::string prefix_;  // of names: "rates."
    std::set<std::string> asked_;
    std::optional<std::string> wrong_;
};

}  // namespace gpunbd::server::admin
