// The base class of the sub-commands of gpunbd. The parser, the help, the completions, the manual
// page and the messages for wrong usage are generated from the descriptions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::config {

// Wrong usage, with its message; reported with exit code 2.
class UsageError : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

// Stores the argument of a flag or a command ("" for a flag without one). Returns an error, if any.
using Store = std::function<std::optional<std::string>(std::string_view)>;

struct Flag {
    std::string_view name;         // "--size"
    std::string_view letter = "";  // "-p"
    std::string_view takes = "";   // the name of its argument; empty: none
    std::string_view example = "";
    std::string_view brief;                    // one phrase, also for completions
    std::string more = {};                     // the help appends this to `brief`
    std::vector<std::string_view> words = {};  // the possible arguments, if they can be listed
    std::string called = {};                   // its names in other programs: "--listen --address"
    std::string_view old = "";                 // a former name, which the parser still accepts
    std::string key = {};         // the configuration key that it sets: "pipeline.slots"
    std::string_view needs = "";  // another flag that it requires
    std::vector<std::string_view> excludes = {};  // flags that may not be given with it
    std::string_view why_not = "";                // the reason
    bool repeats = false;
    bool with_file = false;         // may be given together with --config
    std::string_view details = "";  // gpunbd(8) appends them to `brief` and `more`, in mdoc
    Store store = {};
    std::vector<std::string_view> actions = {};  // of the command that take it; empty: all
};

// Arguments with these names are completed as file names, or as URIs.
inline constexpr std::string_view file_argument = "FILE";
inline constexpr std::string_view folder_argument = "DIR";
inline constexpr std::string_view device_argument = "DEVICE";
inline constexpr std::string_view uri_argument = "URI";
inline constexpr std::string_view export_argument = "EXPORT";  // of a running server

struct FlagGroup {
    std::string_view title;
    std::vector<Flag> flags;
};

// What a command does, named by its first argument, as create of gpunbd export.
struct Action {
    std::string_view name;
    std::string_view called = "";  // its names in other programs: "rm delete"
    std::string_view brief;
    std::string_view takes = "";  // how to complete its arguments: "EXPORT FILE", "EXPORT..."
    std::string usage;            // of this action alone
    std::string about;
    std::string examples;
};

// The help prints the texts unchanged.
struct Description {
    std::string_view name;         // empty: gpunbd itself
    std::string_view called = "";  // its names in other programs: "start run"
    std::string_view takes = "";   // its argument, or several: "URI DEVICE"
    std::string_view example = "";
    std::vector<std::string_view> words = {};  // the possible arguments, if they can be listed
    std::string_view kind = "";                // their name in messages: "topics"
    bool optional = false;                     // whether the argument is optional
    std::string_view brief;
    std::string usage;
    std::string_view about;
    std::vector<Action> actions = {};  // --help after one of them describes only that
    std::vector<FlagGroup> groups;     // --help follows the last flag
    std::string examples;
    std::string_view ending;
    std::string_view wraps = "";   // the sub-command that follows on its command line
    std::string_view manual = "";  // its text in gpunbd(8), in mdoc; empty: `about`
    bool hidden = false;           // omitted from the help and the manual
    Store store = {};              // of the argument
};

class Command;
using Commands = std::vector<std::unique_ptr<Command>>;

class Command : public Description {
 public:
    explicit Command(Description description);
    virtual ~Command() = default;
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;

    // After the flags have been stored. By default the command takes the one argument of its
    // description.
    virtual void store_arguments(const std::vector<std::string>& arguments);
    // For a command that wraps another one: stores the command line of the latter.
    virtual void store_wrapped(const std::vector<std::string>&) {}
    // Throws UsageError if flags or arguments contradict each other.
    virtual void check() {}
    // Returns the exit code.
    virtual int run(const Commands& all) = 0;

 protected:
    // "write for example gpunbd ping nbd://..."
    std::string write_for_example() const;
};

const Command* find_command(const Commands& all, std::string_view name);
// Finds a flag by name or letter; null if the command has no such flag.
const Flag* find_flag(const Description& command, std::string_view name);
// Null if the command has no such action.
const Action* find_action(const Description& command, std::string_view name);
// "unknown action 'rm'; did you mean gpunbd export remove?"
std::string on_unknown_action(const Description& command, std::string_view word);
// Whether a list such as Flag::called has the word.
bool has_word(std::string_view list, std::string_view word);
// The description of gpunbd itself.
const Description& program();

}  // namespace gpunbd::config
