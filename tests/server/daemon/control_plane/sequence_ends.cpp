
#include "tests/server/daemon/control_plane/disk.hpp"
#include "tests/server/daemon/control_plane/sequence.hpp"

namespace gpunbd::server::test {

using std::to_string;

// --- failed and interrupted restores

void Sequence::restore_with_read_error() {
    std::optional<Step> step = restore();
    if (!step) return;
    const std::uint64_t call = up_to(6);
    disk::fail(disk::Call::read, call);
    step->text += ", read " + to_string(call) + " fails";
    step->expected_done.reset();
    const Submitted submitted = submit(*std::move(step));
    wait_for(submitted);
    server_->settle();
    disk::release();
    apply_answer(submitted);
}

// The disk stops in the middle. Other changes follow before it goes on or the server ends.
void Sequence::restore_that_stops() {
    std::optional<Step> step = restore();
    if (!step) return;
    const std::string name = step->name;
    const std::optional<ModelExport> before = model_.find(name);
    disk::hold(up_to(8));
    step->expected_done.reset();
    const Submitted restore = submit(*std::move(step));
    server_->run_until([&] { return disk::is_holding() || restore.answer->has_value(); });
    server_->settle();
    if (!disk::is_holding()) {
        disk::release();
        wait_for(restore);
        return apply_answer(restore);
    }
    log("... stops");
    model_.closed.insert(name);
    std::vector<Submitted> unanswered;
    for (std::uint64_t i = up_to(3); i != 0; --i) meanwhile(name, unanswered);
    const std::uint64_t end = up_to(4);
    if (end == 0) return end_during_restore(restore, before, true);
    if (end == 1) return end_during_restore(restore, before, false);
    log(end == 2 ? "... fails" : "... goes on");
    disk::release(end == 2 ? EIO : 0);
    wait_for(restore);
    for (const Submitted& each : unanswered) wait_for(each);
    server_->settle();
    model_.closed.erase(name);
    apply_answer(restore);
    for (const Submitted& each : unanswered) apply_answer(each);
}

// A change of the export, or of another one, while it is being restored.
void Sequence::meanwhile(const std::string& name, std::vector<Submitted>& unanswered) {
    std::optional<Step> step;
    const std::uint64_t kind = up_to(7);
    if (kind < 4) {  // of the export
        if (!served(name)) return;
        const auto nothing = [](Model&) {};
        if (kind == 0) {
            step = Step{.text = "remove " + name,
                        .begin = changing(RemoveExport{.name = name}),
                        .effect = nothing};
        } else if (kind == 1) {
            step = clone_of(name, free_name());
        } else if (kind == 2) {
            step = Step{.text = "resize " + name,
                        .begin = changing(ResizeExport{.name = name, .size = 64 * model_page}),
                        .effect = nothing};
        } else if (name == "base") {
            step = client_clone_of("node", name);
        }
        if (step) step->expected_done = false;
    } else if (kind == 4) {
        step = create();
    } else if (kind == 5) {
        step = clone();
    } else if (kind == 6) {
        step = remove();
    } else {
        reload();
        return check();
    }
    if (!step) return;
    step->text = "... " + step->text;
    const Submitted submitted = submit(*std::move(step));
    server_->settle();
    if (submitted.answer->has_value()) {
        apply_answer(submitted);
    } else {
        unanswered.push_back(submitted);
    }
    check();
}

void Sequence::end_during_restore(const Submitted& restore,
                                  const std::optional<ModelExport>& before, bool killed) {
    log(killed ? "... kill" : "... terminate");
    const std::string& name = restore.step.name;
    Model complete = model_;
    if (before) complete.exports[name] = *before;
    restore.step.effect(complete);
    complete = at_restart(complete);
    if (killed) {
        supervisor_.kill();
        disk::release();
    } else {
        server_->terminate();
    }
    server_.reset();
    model_ = at_restart(model_);
    model_.exports.erase(name);
    Candidates& candidates = model_.undecided[name];
    if (before) {
        candidates.emplace_back(remade(*before));
        // The disk goes on while the server ends.
        if (!killed) candidates.push_back(complete.find(name));
    } else {
        candidates.emplace_back(std::nullopt);
    }
    start();
}

// --- ends of the server

// The server dies during the step.
void Sequence::make_and_kill(Step step) {
    const std::uint64_t message = up_to(8);
    step.text += ", killed at message " + to_string(message);
    supervisor_.kill_at(message);
    const Submitted submitted = submit(std::move(step));
    server_->run_until([&] { return supervisor_.is_dead() || submitted.answer->has_value(); });
    if (!supervisor_.is_dead()) server_->settle();
    supervisor_.cancel_kill();
    // What was answered is in effect.
    const bool is_answered = submitted.answer->has_value();
    if (is_answered) apply_answer(submitted);
    if (!supervisor_.is_dead()) return;
    Model after = model_;
    const auto& interrupted = submitted.step.interrupted;
    if (!is_answered && !interrupted) submitted.step.effect(after);
    server_.reset();
    if (!is_answered && interrupted) interrupted();
    const Model before = at_restart(model_);
    after = at_restart(after);
    start();
    model_ = before;
    if (!submitted.step.name.empty()) model_.add_undecided(submitted.step.name, before, after);
    if (server_->context.exports.templates()->size() == after.templates.size()) {
        model_.templates = after.templates;
    }
}

ModelExport Sequence::remade(const ModelExport& its) {
    ModelExport again = its;
    const auto file = files_.find(its.restored_from);
    again.pages = file == files_.end() ? ModelPages() : copies(file->second);
    again.pages.resize(its.configured_pages);
    return again;
}

Model Sequence::at_restart(const Model& before) {
    Model next = before;
    next.claims.clear();
    next.closed.clear();
    for (const auto& [name, each] : before.exports) {
        if (each.keep) continue;
        if (each.is_clone) {
            next.exports.erase(name);
        } else {
            next.exports[name] = remade(each);
        }
    }
    return next;
}

void Sequence::kill() {
    log("kill");
    supervisor_.kill();
    server_.reset();
    model_ = at_restart(model_);
    start();
}

void Sequence::terminate() {
    log("terminate");
    server_->terminate();
    server_.reset();
    model_ = at_restart(model_);
    start();
}

void Sequence::upgrade() {
    if (!keeps_) return;
    log("upgrade");
    std::unique_ptr<InProcessServer> successor;
    const std::string why = server_->upgrade(supervisor_, config_file(), successor);
    if (!why.empty()) throw Violation("the upgrade fails: " + why);
    server_ = std::move(successor);
    server_->settle();
    model_ = at_restart(model_);
}

// With the export `extra` or without it.
void Sequence::reload() {
    const auto extra = model_.find("extra");
    if ((extra && extra->run_time) || model_.closed.contains("extra")) return;
    has_extra_ = !has_extra_;
    log(has_extra_ ? "reload with extra" : "reload without extra");
    write_config();
    server_->exports->reload_file();
    server_->settle();
    if (!has_extra_) {
        model_.exports.erase("extra");
        if (extra->keep) model_.kept["extra"].push_back(extra);
    } else if (served("extra") || !model_.kept.contains("extra")) {
        model_.exports["extra"] = configured();
        model_.may_take_kept("extra");
    } else {
        log("... its kept contents were made for other options");
        has_extra_ = false;
        write_config();
        server_->exports->reload_file();
        server_->settle();
    }
}

}  // namespace gpunbd::server::test
