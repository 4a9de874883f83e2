// What to write instead of an argument that no flag and no command takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::config {

using Arguments = std::vector<std::string>;

class UsageAdvice {
 public:
    // `line` lacks the program's name. `given`: the command that it names, or program().
    UsageAdvice(const Commands& all, const Description& given, const Arguments& line)
        : all_(all), given_(given), line_(line) {}

    // `owner`: the command, or program(), where the flag was found.
    std::string on_unknown_flag(const Description& owner, std::string_view text) const;
    std::string on_stray_word(std::string_view word) const;
    // The first flag that the parser would take otherwise than it was meant: --size --device host,
    // --readonly=no, -port. Empty if there is none.
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
