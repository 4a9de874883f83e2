// Every command and every flag, once. The parser, the help, the completions and the remedies of
// wrong usage read this table; a test holds gpunbd(8) against it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::config {

struct Flag {
    std::string_view name;         // "--size"
    std::string_view letter = "";  // "-p"
    std::string_view takes = "";   // what the help calls its argument; empty: it takes none
    std::string_view example = "";
    std::string_view brief;                    // what it is, also for completions
    std::string more = {};                     // what the help says behind that
    std::vector<std::string_view> words = {};  // what its argument can be, where that can be told
    std::string_view called = "";              // what it is elsewhere: "--listen --address"
    std::string_view key = "";                 // the one that it sets: "pipeline.slots"
    bool repeats = false;
    bool with_file = false;  // may stand beside --config
};

// The arguments of flags and commands that a shell completes with the names of files.
inline constexpr std::string_view file_argument = "FILE";

inline constexpr std::string_view folder_argument = "DIR";

inline constexpr std::string_view device_argument = "DEVICE";

struct FlagGroup {
    std::string_view title;
    std::vector<Flag> flags;
};

struct Command {
    std::string_view name;         // empty: gpunbd itself
    std::string_view called = "";  // what it is elsewhere: "start run"
    std::string_view takes = "";   // its one argument, or several: "URI DEVICE"
    std::string_view example = "";
    std::vector<std::string_view> words = {};
    std::string_view brief;
    std::string_view usage;  // further parts of the help, as they are printed
    std::string_view about;
    std::vector<FlagGroup> groups;
    std::string_view examples;
    std::string_view ending;
};

const Command& program();
const std::vector<Command>& commands();
const Command* find_command(std::string_view name);
// The flag of that name or letter; null: the command has none.
const Flag* find_flag(const Command& command, std::string_view name);

}  // namespace gpunbd::config
