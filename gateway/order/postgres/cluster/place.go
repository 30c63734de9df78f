package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// place is where PostgreSQL runs, and as whom.
type place struct {
	programs string // the folder of initdb and postgres
	data     string
	socket   string // a folder
	log      string
	owner    *syscall.Credential // nil: this process's own user
	shut     bool                // owner cannot enter Dir: only in a user namespace
}

// prepare finds the programs, makes the folders, and gives them to who will run PostgreSQL.
func prepare(dir string) (place, error) {
	p := place{
		data: filepath.Join(dir, "data"), socket: socketDir(dir),
		log: filepath.Join(dir, "postgres.log"),
	}
	var err error
	if p.programs, err = programs(p.data); err != nil {
		return p, err
	}
	if os.Geteuid() == 0 {
		if p.owner, err = unprivileged(); err != nil {
			return p, err
		}
		p.shut = !reachable(dir)
	}
	if err := p.mkdir(p.socket, 0o700); err != nil {
		return p, err
	}
	return p, p.adopt(p.data)
}

// mostSocketPath is the longest path of a Unix socket, with its final zero 108 bytes.
const mostSocketPath = 107

// socketDir is inside dir, or, where its path would be too long, in the temporary directory by a
// name that follows from dir.
func socketDir(dir string) string {
	inside := filepath.Join(dir, "socket")
	if len(filepath.Join(inside, ".s.PGSQL."+port)) <= mostSocketPath {
		return inside
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join("/tmp", "numera-"+hex.EncodeToString(sum[:8]))
}

// programs finds PostgreSQL: for data that exist the major version that made them, else the newest.
func programs(data string) (string, error) {
	wanted, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cluster: %w", err)
	}
	major := strings.TrimSpace(string(wanted))
	for _, dir := range candidates() {
		version, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			continue
		}
		if major == "" || strings.Contains(string(version), " "+major+".") {
			return dir, nil
		}
	}
	if major != "" {
		return "", fmt.Errorf("%w-%s, whose data are in %s", ErrProgramsMissing, major, data)
	}
	return "", ErrProgramsMissing
}

// candidates are folders that may hold the programs: Debian's, newest first, and whatever the
// machine itself names.
func candidates() []string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // fails for a bad pattern only
	slices.SortFunc(dirs, func(a, b string) int { return majorOf(b) - majorOf(a) })
	if named, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(named)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

// majorOf is the version in Debian's path; what is no number comes last.
func majorOf(dir string) int {
	major, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return major
}

// unprivileged is who runs PostgreSQL for root.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, fmt.Errorf("cluster: user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("cluster: PostgreSQL does not run as root, " +
		"and there is neither a user postgres nor a user nobody")
}

// reachable says that everybody may enter dir and all its parents.
func reachable(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// mkdir makes a folder that belongs to who runs PostgreSQL.
func (p *place) mkdir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return p.adopt(dir)
}

// adopt gives a folder with all that is in it to who runs PostgreSQL, unless it has it already.
// One that does not exist is left alone.
func (p *place) adopt(dir string) error {
	if p.owner == nil {
		return nil
	}
	uid, gid := int(p.owner.Uid), int(p.owner.Gid)
	if p.shut {
		uid, gid = 0, 0
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if info.Sys().(*syscall.Stat_t).Uid == uint32(uid) {
		return nil
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// attend makes a program run as the owner, in dir, apart from the terminal's signals, and end when
// this process does.
func (p *place) attend(program *exec.Cmd, dir string) {
	program.Dir = dir
	program.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	program.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGINT, Credential: p.owner,
	}
	if p.shut {
		own := func(id uint32) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: int(id), HostID: 0, Size: 1}}
		}
		program.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		program.SysProcAttr.UidMappings = own(p.owner.Uid)
		program.SysProcAttr.GidMappings = own(p.owner.Gid)
		program.SysProcAttr.GidMappingsEnableSetgroups = true
	}
}

// explain says what to do where the kernel gives no user namespaces, as in some containers.
func (p *place) explain(err error) error {
	var failure *fs.PathError
	if p.shut && errors.As(err, &failure) && failure.Op == "fork/exec" {
		return fmt.Errorf("%w: PostgreSQL does not run as root, and another user cannot enter %s: "+
			"open its parents with chmod o+x, or choose another directory", err, filepath.Dir(p.data))
	}
	return err
}
