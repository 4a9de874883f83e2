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

struct Action {
    std::string_view name;
    std::vector<std::string_view> takes;  // the names of its arguments
    std::string_view example;
};

const std::vector<Action>& actions() {
    static const std::vector<Action> all{{"list", {}, "list"},
                                         {"create", {"NAME"}, "create fast --size 8G"},
                                         {"remove", {"NAME"}, "remove fast"},
                                         {"resize", {"NAME", "SIZE"}, "resize fast 16G"},
                                         {"snapshot", {"SOURCE", "NAME"}, "snapshot fast before"},
                                         {"clone", {"SOURCE", "NAME"}, "clone fast copy"},
                                         {"save", {"NAME", "FILE"}, "save fast fast.img"},
                                         {"restore", {"FILE", "NAME"}, "restore fast.img fast"}};
    return all;
}

std::vector<std::string_view> action_names() {
    std::vector<std::string_view> out;
    for (const Action& each : actions()) out.push_back(each.name);
    return out;
}

constexpr std::uint64_t max_threads = 256;

constexpr std::string_view json_details = R"(.Cm list
prints the list of exports of the API, the others an object with the sentence
.Va done .)";

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
               .called = "create add new remove delete resize grow snapshot clone volume volumes "
                         "exports save load restore backup",
               .takes = "ACTION NAME",
               .example = "create fast --size 8G",
               .words = action_names(),
               .kind = "actions",
               .brief = "Create, change, clone and save exports",
               .usage = R"(Usage: gpunbd export list [--json]
       gpunbd export create NAME --size SIZE [--persist] [--json] [FLAG...]
       gpunbd export remove NAME [--force] [--keep-contents] [--json]
       gpunbd export resize NAME SIZE [--discard] [--reconnect] [--json]
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
of the configuration cannot be removed. save writes the contents to a file of
the server's machine, and restore reads them into an export that is empty or
new.
)",
               .groups = {{"Flags",
                           status::server_flags(
                               settings.server,
                               {{.name = "--persist",
                                 .brief = "Also create the new export at each start",
                                 .more = "; requires a server with --state.",
                                 .called = "--permanent --save --persistent",
                                 .store = into(settings.persist)},
                                {.name = "--compress",
                                 .takes = "KIND",
                                 .example = "zstd",
                                 .brief = "With save: compress the file",
                                 .more = "; default: only if its name ends in .zst. Other "
                                         "files are raw images with holes.",
                                 .words = {"zstd"},
                                 .called = "--zstd --compression",
                                 .store = into_zstd(settings.zstd)},
                                {.name = "--threads",
                                 .takes = "N",
                                 .example = "4",
                                 .brief = "With save: threads that compress the file",
                                 .more = ", 1 to 256; default 1.",
                                 .called = "--jobs --workers",
                                 .store = into(settings.threads, integer_in(1, max_threads))},
                                {.name = "--force",
                                 .brief = "With remove: disconnect its clients",
                                 .more = ".",
                                 .called = "--yes --kill",
                                 .store = into(settings.force)},
                                {.name = "--keep-contents",
                                 .brief = "With remove: keep contents for keeping.grace",
                                 .more = "; otherwise they are freed at once.",
                                 .called = "--grace --keep-data",
                                 .store = into(settings.keep_contents)},
                                {.name = "--reconnect",
                                 .brief = "With resize: disconnect clients with an earlier size",
                                 .more = ", which then connect again.",
                                 .called = "--kick",
                                 .store = into(settings.reconnect)},
                                {.name = "--discard",
                                 .brief = "With resize: drop data beyond the new end",
                                 .more = "; otherwise such data prevents it.",
                                 .called = "--shrink --truncate",
                                 .store = into(settings.discard)},
                                {.name = "--json",
                                 .brief = "Print JSON instead of text",
                                 .more = ".",
                                 .called = "--format --output",
                                 .details = json_details,
                                 .store = into(settings.json)}})},
                          {"Keys of create, see gpunbd.yaml(5)", export_key_flags(settings.keys)}},
               .examples = R"(  gpunbd export list
  gpunbd export create fast --size 8G --device cuda:0
  gpunbd export create images --size 20G --read-only --persist
  gpunbd export resize fast 16G
  gpunbd export snapshot fast before-upgrade
  gpunbd export remove fast --force
  gpunbd export save fast /backup/fast.img.zst --threads 4
  gpunbd export restore /backup/fast.img.zst fast
)",
               .ending =
                   R"(Exit codes: 0 done; 1 no server answers, or it refuses the change; 2 wrong
usage.
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
removes an export that was created at run time, and frees its contents; with
.Fl -keep-contents
those of an export with
.Va keep
remain for
.Va keeping.grace .
.Cm resize
makes it larger or smaller; clients see this when they connect again, and
.Nm Cm attach
passes it to the kernel then.
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
    const std::vector<std::string_view> names = action_names();
    if (arguments.empty()) {
        throw UsageError(fmt::format("the action is missing: {}; {}", rules::either(names),
                                     write_for_example()));
    }
    const auto action = std::ranges::find(actions(), arguments[0], &Action::name);
    if (action == actions().end()) {
        throw UsageError(fmt::format("{} is none of the actions {}", in_quotes(arguments[0]),
                                     rules::either(names)));
    }
    settings.action = action->name;
    settings.names.assign(arguments.begin() + 1, arguments.end());
    const std::size_t wanted = action->takes.size();
    if (settings.names.size() < wanted) {
        throw UsageError(fmt::format("{} is missing; write for example gpunbd export {}",
                                     action->takes[settings.names.size()], action->example));
    }
    if (settings.names.size() > wanted) {
        throw UsageError(fmt::format(
            "{} takes {}; leave {} out", action->name,
            wanted == 0 ? "no argument" : fmt::format("{}", fmt::join(action->takes, " ")),
            in_quotes(settings.names[wanted])));
    }
    for (std::size_t i = 0; i != wanted; ++i) {
        const std::string& each = settings.names[i];
        if (action->takes[i] == "SIZE") {
            const auto size = rules::export_size(each);
            if (const auto* wrong = std::get_if<rules::Wrong>(&size)) throw UsageError(wrong->what);
            if (std::get<Size>(size).percent != 0) {
                throw UsageError("the SIZE is a share; write bytes, for example 16G");
            }
            continue;
        }
        if (action->takes[i] == "FILE") {
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
        if (each.empty()) throw UsageError("the NAME is empty; give the export a name");
    }
}

void ExportCommand::check() {
    const auto only_for = [&](bool given, std::string_view flag,
                              const std::vector<std::string_view>& its_actions) {
        if (!given || std::ranges::find(its_actions, settings.action) != its_actions.end()) return;
        throw UsageError(
            fmt::format("{} is for {}; leave it out", flag, fmt::join(its_actions, " and ")));
    };
    only_for(settings.persist, "--persist", {"create", "restore"});
    only_for(settings.force, "--force", {"remove"});
    only_for(settings.keep_contents, "--keep-contents", {"remove"});
    only_for(settings.discard, "--discard", {"resize"});
    only_for(settings.reconnect, "--reconnect", {"resize"});
    only_for(settings.zstd, "--compress", {"save"});
    only_for(settings.threads.has_value(), "--threads", {"save"});
    if (settings.threads && !settings.zstd && !settings.names[1].ends_with(".zst")) {
        throw UsageError(
            "--threads is for compressed files; add --compress zstd, or end the FILE in .zst");
    }
    only_for(!settings.keys.empty(), "a key of an export", {"create", "restore"});
    const auto is_size = [](const auto& each) {
        return each.first == "size" || each.first == "restore" || each.first == "clone_of" ||
               each.first == "clone_per_client.of";
    };
    if (settings.action == "create" && std::ranges::none_of(settings.keys, is_size)) {
        throw UsageError("--size is missing; add it, for example --size 8G");
    }
    for (const auto& [key, text] : settings.keys) {
        const bool gives_contents =
            key == "clone_of" || key == "restore" || key.starts_with("clone_per_client.");
        if (settings.action != "restore" || !gives_contents) continue;
        throw UsageError(fmt::format(
            "restore takes the contents from FILE and excludes the key {}; leave it out", key));
    }
}

int ExportCommand::run(const Commands&) {
    return status::run_export(settings, server::likely_runtime_folders());
}

}  // namespace gpunbd::tools
