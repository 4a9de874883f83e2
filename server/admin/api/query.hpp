// The query of a request's target: names and values. A name that is repeated or unknown is an
// error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::server::admin {

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

}  // namespace gpunbd::server::admin
