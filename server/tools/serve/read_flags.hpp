#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/command.hpp"
#include "config/serve_command.hpp"

namespace gpunbd::tools {

// The flags of a command line with their unchecked arguments.
class GivenFlags {
 public:
    void add(std::string_view name, std::string_view text) { values_[name].emplace_back(text); }
    bool given(std::string_view name) const { return values_.contains(name); }
    const std::vector<std::string>& all(std::string_view name) const {
        static const std::vector<std::string> none;
        const auto found = values_.find(name);
        return found == values_.end() ? none : found->second;
    }
    const std::string* text(std::string_view name) const {
        const auto& values = all(name);
        return values.empty() ? nullptr : &values.front();
    }

 private:
    std::map<std::string_view, std::vector<std::string>> values_;
};

// Converts the flags of `gpunbd serve` to checked options.

// Throws UsageError.
config::ServeCommand read_serve_flags(const config::Description& serve, const GivenFlags& given);

}  // namespace gpunbd::tools
