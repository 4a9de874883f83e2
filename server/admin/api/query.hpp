// The part of a request's target behind '?': names and values, each at most once, and nothing that
// nobody asks for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::server::admin {

class Query {
 public:
    // As it was sent.
    explicit Query(std::string_view text);

    // Each may be asked for; those that are wrong or missing leave their mark.
    std::optional<std::string> text(const std::string& name);
    std::string required_text(const std::string& name);
    std::uint64_t count(const std::string& name, std::uint64_t least, std::uint64_t most,
                        std::uint64_t otherwise);
    // After all have been asked for: the first thing that is wrong, with what would be right.
    std::optional<std::string> wrong() const;

 private:
    void remember(const std::string& what);

    std::map<std::string, std::string> values_;
    std::map<std::string, bool> asked_;
    std::optional<std::string> wrong_;
};

struct Target {
    std::string_view path;
    std::string_view query;
};
Target split_target(std::string_view target);

}  // namespace gpunbd::server::admin
