#include "server/tools/export/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/base/runtime_folder.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

// The arguments of an action, and an example of them.
struct Form {
    std::string_view action;
    std::vector<std::string_view> takes;
    std::string_view example;
    bool several = false;  // of the last one
};

const Form* form_of(std::string_view action) {
    static const std::vector<Form> all{
        {.action = "list", .takes = {}, .example = "list"},
        {.action = "create", .takes = {"NAME"}, .example = "create fast --size 8G"},
        {.action = "remove", .takes = {"NAME"}, .example = "remove fast", .several = true},
        {.action = "resize", .takes = {"NAME", "SIZE"}, .example = "resize fast 16G"},
        {.action = "flush", .takes = {"NAME"}, .example = "flush disk"},
        {.action = "evict", .takes = {"NAME", "SIZE"}, .example = "evict disk 4G"},
        {.action = "rename", .takes = {"NAME", "NEW"}, .example = "rename fast faster"},
        {.action = "snapshot", .takes = {"SOURCE", "NAME"}, .example = "snapshot fast before"},
        {.action = "clone", .takes = {"SOURCE", "NAME"}, .example = "clone fast copy"},
        {.action = "save", .takes = {"NAME", "FILE"}, .example = "save fast fast.img"},
        {.action = "restore", .takes = {"FILE", "NAME"}, .example = "restore fast.img fast"}};
    const auto found = std::ranges::find(all, action, &Form::action);
    return found == all.end() ? nullptr : &*found;
}

// `usage`: the lines of the action, without "gpunbd export".
Action action(std::string_view name, std::string_view called, std::string_view brief,
              std::string_view takes, std::string_view usage, std::string about,
              std::string examples) {
    return {.name = name,
            .called = called,
            .brief = brief,
            .takes = takes,
            .usage = fmt::format("Usage: gpunbd export {}\n"
                                 "       with [--socket PATH | --url URL [--token FILE]]\n",
                                 usage),
            .about = std::move(about),
            .examples = std::move(examples)};
}

std::vector<Action> all_actions() {
    return {
        action("list", "ls show print all", "List the exports", "", "list [--json]",
               R"(Prints the name, size, memory in use, devices and clients of each export.
)",
               "  gpunbd export list\n"),
        action("create", "new add make mk", "Create an export", "",
               "create NAME --size SIZE [--persist] [--json] [FLAG...]",
               R"(The new export lasts until the server ends, and remains after a reload of the
configuration; with --persist it is also written to the server's state folder,
which is read at the next start.
)",
               R"(  gpunbd export create fast --size 8G --device cuda:0
  gpunbd export create images --size 20G --read-only --persist
)"),
        action("remove", "rm delete del destroy drop", "Remove exports", "EXPORT...",
               "remove NAME... [--force] [--keep-contents] [--json]",
               R"(Removes exports that were created at run time, one after the other, and frees
their contents. Those of the configuration cannot be removed.
)",
               R"(  gpunbd export remove fast --force
  gpunbd export remove one two three
)"),
        action("resize", "grow shrink extend truncate", "Change the size of an export",
               "EXPORT SIZE", "resize NAME SIZE [--discard] [--reconnect] [--json]",
               "Clients see the new size when they connect again.\n",
               "  gpunbd export resize fast 16G\n"),
        action(
            "flush", "sync write-back", "Write what the origin of an export lacks", "EXPORT",
            "flush NAME [--json]",
            "Returns when the origin has all that clients have written, also after a power cut.\n",
            "  gpunbd export flush disk\n"),
        action("evict", "drop-cache shrink-cache uncache",
               "Drop pages that the origin has from memory", "EXPORT SIZE",
               "evict NAME SIZE [--json]",
               "Drops the pages first that clients did not use recently.\n",
               "  gpunbd export evict disk 4G\n"),
        action("rename", "mv move name", "Change the name of an export", "EXPORT NAME",
               "rename NAME NEW [--json]",
               R"(Clients stay connected; later ones open the export by its new name. Those of the
configuration cannot be renamed.
)",
               "  gpunbd export rename fast faster\n"),
        action("snapshot", "snap freeze", "Create a read-only export with the same contents",
               "EXPORT NAME", "snapshot SOURCE NAME [--json]",
               R"(The snapshot has the contents that SOURCE has at that instant. The two share
memory until SOURCE is written.
)",
               "  gpunbd export snapshot fast before-upgrade\n"),
        action("clone", "copy cp fork duplicate", "Create a writable export with the same contents",
               "EXPORT NAME", "clone SOURCE NAME [--json]",
               R"(The clone has the contents that SOURCE has at that instant. The two share
memory until one of them is written.
)",
               "  gpunbd export clone fast copy\n"),
        action("save", "backup dump export", "Save the contents of an export to a file",
               "EXPORT FILE", "save NAME FILE [--compress zstd] [--threads N] [--json]",
               R"(Writes the contents to a file of the server's machine while clients use the
export. Needs the admin socket.
)",
               R"(  gpunbd export save fast /backup/fast.img
  gpunbd export save fast /backup/fast.img.zst --threads 4
)"),
        action("restore", "load import", "Read the contents of an export from a file",
               "FILE EXPORT", "restore FILE NAME [--persist] [--json] [FLAG...]",
               R"(Reads a file of the server's machine into an export that is empty or new. Needs
the admin socket.
)",
               "  gpunbd export restore /backup/fast.img.zst fast\n")};
}

std::vector<std::string_view> action_names() {
    std::vector<std::string_view> out;
    for (const Action& each : all_actions()) out.push_back(each.name);
    return out;
}

std::vector<Flag> key_flags(KeyValues& keys) {
    std::vector<Flag> out = export_key_flags(keys);
    for (Flag& each : out) each.actions = {"create", "restore"};
    return out;
}

constexpr std::uint64_t max_threads = 256;

constexpr std::string_view json_details = R"(.Cm list
prints the list of exports of the API;
.Cm save
an object with
.Va name
and
.Va file ;
.Cm remove
an object with the lists
.Va removed
of names and
.Va failed
of objects with
.Va name
and
.Va error ;
the others the export as in the list.
After a failure, the object's
.Va error
is the reason.)";

Store into_zstd(bool& zstd) {
    return [&zstd](std::string_view text) -> std::optional<std::string> {
        if (text != "zstd") return fmt::format("{} is not zstd; write zstd", in_quotes(text));
        zstd = true;
        return std::nullopt;
    };
}

}  // namespace

ExportCommand::ExportCommand()
    : Command({.name = "export",
               .called = "create add new remove delete resize grow rename snapshot clone volume "
                         "volumes exports save load restore backup",
               .takes = "ACTION NAME",
               .example = "create fast --size 8G",
               .words = action_names(),
               .kind = "actions",
               .brief = "Create, change, clone and save exports",
               .usage = R"(Usage: gpunbd export list [--json]
       gpunbd export create NAME --size SIZE [--persist] [--json] [FLAG...]
       gpunbd export remove NAME... [--force] [--keep-contents] [--json]
       gpunbd export resize NAME SIZE [--discard] [--reconnect] [--json]
       gpunbd export flush NAME [--json]
       gpunbd export evict NAME SIZE [--json]
       gpunbd export rename NAME NEW [--json]
       gpunbd export snapshot SOURCE NAME [--json]
       gpunbd export clone SOURCE NAME [--json]
       gpunbd export save NAME FILE [--compress zstd] [--threads N] [--json]
       gpunbd export restore FILE NAME [--persist] [--json] [FLAG...]
       each with [--socket PATH | --url URL [--token FILE]]
)",
               .about =
                   R"(Changes the exports of a running server. A new export lasts until the server
ends, and remains after a reload of the configuration; with --persist it is also
written to the server's state folder, which is read at the next start. Exports
of the configuration cannot be removed or renamed. save writes the contents to a
file of the server's machine, and restore reads them into an export that is
empty or new.
)",
               .actions = all_actions(),
               .groups = {{"Flags",
                           status::server_flags(
                               settings.server,
                               {{.name = "--persist",
                                 .brief = "Also create the new export at each start",
                                 .more = "; requires a server with --state.",
                                 .called = "--permanent --save --persistent",
                                 .store = into(settings.persist),
                                 .actions = {"create", "restore"}},
                                {.name = "--compress",
                                 .takes = "KIND",
                                 .example = "zstd",
                                 .brief = "With save: compress the file",
                                 .more = "; default: only if its name ends in .zst. Other "
                                         "files are raw images with holes.",
                                 .words = {"zstd"},
                                 .called = "--zstd --compression",
                                 .store = into_zstd(settings.zstd),
                                 .actions = {"save"}},
                                {.name = "--threads",
                                 .takes = "N",
                                 .example = "4",
                                 .brief = "With save: threads that compress the file",
                                 .more = ", 1 to 256; default 1.",
                                 .called = "--jobs --workers",
                                 .store = into(settings.threads, integer_in(1, max_threads)),
                                 .actions = {"save"}},
                                {.name = "--force",
                                 .brief = "With remove: disconnect its clients",
                                 .more = ".",
                                 .called = "--yes --kill",
                                 .store = into(settings.force),
                                 .actions = {"remove"}},
                                {.name = "--keep-contents",
                                 .brief = "With remove: keep contents for keeping.grace",
                                 .more = "; otherwise they are freed at once.",
                                 .called = "--grace --keep-data",
                                 .store = into(settings.keep_contents),
                                 .actions = {"remove"}},
                                {.name = "--reconnect",
                                 .brief = "With resize: disconnect clients with an earlier size",
                                 .more = ", which then connect again.",
                                 .called = "--kick",
                                 .store = into(settings.reconnect),
                                 .actions = {"resize"}},
                                {.name = "--discard",
                                 .brief = "With resize: drop data beyond the new end",
                                 .more = "; otherwise such data prevents it.",
                                 .called = "--shrink --truncate",
                                 .store = into(settings.discard),
                                 .actions = {"resize"}},
                                json_flag(settings.json, json_details)})},
                          {"Keys of create, see gpunbd.yaml(5)", key_flags(settings.keys)}},
               .examples = R"(  gpunbd export list
  gpunbd export create fast --size 8G --device cuda:0
  gpunbd export create images --size 20G --read-only --persist
  gpunbd export resize fast 16G
  gpunbd export rename images disks
  gpunbd export snapshot fast before-upgrade
  gpunbd export remove fast disks --force
  gpunbd export save fast /backup/fast.img.zst --threads 4
  gpunbd export restore /backup/fast.img.zst fast
)",
               .ending =
                   R"(Exit codes: 0 done; 1 no server answers, or it refuses a change; 2 wrong usage.
See also: gpunbd(8), gpunbd.yaml(5)
)",
               .manual =
                   R"(Change the exports of a running server; see
.Sx EXPORTS AT RUN TIME .
.Cm list
shows the name, size, memory in use, devices and clients of each export.
.Cm create
creates an export, whose flags are the keys of
.Va exports
in
.Xr gpunbd.yaml 5 .
It lasts until the server ends.
.Cm remove
removes exports that were created at run time, and frees their contents; if one of several cannot be removed, the
others are; with
.Fl -keep-contents
those of an export with
.Va keep
remain for
.Va keeping.grace .
.Cm resize
makes it larger or smaller; clients see this when they connect again, and
.Nm Cm attach
passes it to the kernel then.
.Cm flush
writes what the origin of an export does not have yet, and flushes the origin; see
.Sx ORIGINS .
.Cm evict
drops pages that the origin has from memory.
.Cm rename
gives an export that was created at run time another name; clients stay connected, and later ones open it by that name.
.Cm snapshot
and
.Cm clone
create a read-only or a writable export with the contents that
.Ar source
has at that instant; the two share memory until one of them is written.
The new export has
.Va keep
if its source has it.
.Cm save
writes the contents of an export to a file of the server's machine, while clients use it.
.Cm restore
reads a file into an export without contents and clients, or into a new one, with the same flags as
.Cm create
except those that give it other contents;
.Fl -size
defaults to the size of the contents.
Both need the admin socket, and the file gets its name when it is complete.
.Pp
The server is found as by
.Nm Cm status .
Changes need its Unix socket, or a token; see
.Sx ADMIN ENDPOINT .
)"}) {}

void ExportCommand::store_arguments(const std::vector<std::string>& arguments) {
    if (arguments.empty()) {
        throw UsageError(fmt::format("the action is missing: {}; {}", rules::either(words),
                                     write_for_example()));
    }
    const Form* const form = form_of(arguments[0]);
    if (form == nullptr) throw UsageError(on_unknown_action(*this, arguments[0]));
    settings.action = form->action;
    settings.names.assign(arguments.begin() + 1, arguments.end());
    const std::size_t wanted = form->takes.size();
    if (settings.names.size() < wanted) {
        throw UsageError(fmt::format("{} is missing; write for example gpunbd export {}",
                                     form->takes[settings.names.size()], form->example));
    }
    if (settings.names.size() > wanted && !form->several) {
        throw UsageError(fmt::format(
            "{} takes {}; leave {} out", form->action,
            wanted == 0 ? "no argument" : fmt::format("{}", fmt::join(form->takes, " ")),
            in_quotes(settings.names[wanted])));
    }
    for (std::size_t i = 0; i != settings.names.size(); ++i) {
        const std::string& each = settings.names[i];
        const std::string_view argument = form->takes[std::min(i, wanted - 1)];
        if (argument == "SIZE") {
            const auto size = rules::export_size(each);
            if (const auto* wrong = std::get_if<rules::Wrong>(&size)) throw UsageError(wrong->what);
            if (std::get<Size>(size).percent != 0) {
                throw UsageError("the SIZE is a share; write bytes, for example 16G");
            }
            continue;
        }
        if (argument == "FILE") {
            if (each.empty()) throw UsageError("the FILE is empty; name a file");
            const auto checked = rules::file_path(each);
            if (const auto* wrong = std::get_if<rules::Wrong>(&checked)) {
                throw UsageError(wrong->what);
            }
            continue;
        }
        const auto checked = rules::export_name(each);
        if (const auto* wrong = std::get_if<rules::Wrong>(&checked)) {
            throw UsageError(wrong->what);
        }
        if (each.empty()) {
            throw UsageError(fmt::format("the {} is empty; give the export a name", argument));
        }
        if (form->several &&
            std::find(settings.names.begin(),
                      settings.names.begin() + static_cast<std::ptrdiff_t>(i),
                      each) != settings.names.begin() + static_cast<std::ptrdiff_t>(i)) {
            throw UsageError(fmt::format("{} is given twice; give each once", in_quotes(each)));
        }
    }
}

void ExportCommand::check() {
    if (settings.threads && !settings.zstd && !settings.names[1].ends_with(".zst")) {
        throw UsageError(
            "--threads is for compressed files; add --compress zstd, or end the FILE in .zst");
    }
    const auto is_size = [](const auto& each) {
        return each.first == "size" || each.first == "restore" || each.first == "clone_of" ||
               each.first == "clone_per_client.of" || each.first.starts_with("origin.");
    };
    if (settings.action == "create" && std::ranges::none_of(settings.keys, is_size)) {
        throw UsageError("--size is missing; add it, for example --size 8G");
    }
    for (const auto& [key, text] : settings.keys) {
        const bool gives_contents = key == "clone_of" || key == "restore" ||
                                    key.starts_with("clone_per_client.") ||
                                    key.starts_with("origin.");
        if (settings.action != "restore" || !gives_contents) continue;
        throw UsageError(fmt::format(
            "restore takes the contents from FILE and excludes the key {}; leave it out", key));
    }
}

int ExportCommand::run(const Commands&) {
    return status::run_export(settings, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
