// Messages for unknown and misplaced arguments, with suggestions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::config {

using Arguments = std::vector<std::string>;

class UsageAdvice {
 public:
    // `line` excludes the name of the program. `given` is the command in it, or program().
    UsageAdvice(const Commands& all, const Description& given, const Arguments& line)
        : all_(all), given_(given), line_(line) {}

    // `owner` is the command, or program(), to which the flag was given.
    std::string on_unknown_flag(const Description& owner, std::string_view text) const;
    std::string on_stray_word(std::string_view word) const;
    // The first flag that CLI11 would misread: --size --device host, --readonly=no, -port. Empty if
    // there is none.
    std::string on_misread_flag() const;

 private:
    const Description& serve() const { return *find_command(all_, "serve"); }
    std::string line_for(const Description& command) const;
    std::string flag_for(std::string_view word) const;
    std::string on_stray_command(std::string_view word) const;

    const Commands& all_;
    const Description& given_;
    const Arguments& line_;
};

}  // namespace gpunbd::config
