package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// strictFS is the file system that Pebble gets. Pebble is never told that an operation failed: the
// fault is raised, and the goroutine that met the error is parked. What Pebble does after an error
// depends on where it happens: it takes a commit for done, tries again without end, panics on a
// goroutine of its own, or blocks the commits that follow. None of that is as good as ending the
// process, which the fault asks for. Only removing a file may fail, since Pebble tries it again.
//
// It also mends an order: Pebble creates a MANIFEST, then the marker that names it, and syncs the
// directory once. POSIX lets a crash in between keep the marker alone, and such a store would never
// open again. Here the directory is synced before a marker too.
type strictFS struct {
	vfs.FS
	fault *fault
}

// written parks after a failed write.
func (fs strictFS) written(operation, name string, err error) {
	if err == nil {
		return
	}
	fs.fault.raise(fmt.Errorf("%s %s: %w", operation, name, err))
	select {}
}

// wasRead parks after a failed read. That a file is not there, or at its end, is an answer.
func (fs strictFS) wasRead(operation, name string, err error) error {
	if err == nil || errors.Is(err, io.EOF) || oserror.IsNotExist(err) {
		return err
	}
	fs.fault.raise(fmt.Errorf("%s %s: %w", operation, name, err))
	select {}
}

func (fs strictFS) file(name string, file vfs.File) vfs.File { return &strictFile{file, fs, name} }

func (fs strictFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(fs.PathBase(name), "marker.") {
		fs.written("sync directory of", name, syncDir(fs.FS, fs.PathDir(name)))
	}
	file, err := fs.FS.Create(name, category)
	fs.written("create", name, err)
	return fs.file(name, file), nil
}

func (fs strictFS) ReuseForWrite(
	oldName, newName string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	file, err := fs.FS.ReuseForWrite(oldName, newName, category)
	fs.written("reuse", oldName, err)
	return fs.file(newName, file), nil
}

func (fs strictFS) OpenReadWrite(
	name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption,
) (vfs.File, error) {
	file, err := fs.FS.OpenReadWrite(name, category, options...)
	fs.written("open", name, err)
	return fs.file(name, file), nil
}

func (fs strictFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := fs.FS.Open(name, options...)
	if err = fs.wasRead("open", name, err); err != nil {
		return nil, err
	}
	return fs.file(name, file), nil
}

func (fs strictFS) OpenDir(name string) (vfs.File, error) {
	dir, err := fs.FS.OpenDir(name)
	if err = fs.wasRead("open", name, err); err != nil {
		return nil, err
	}
	return fs.file(name, dir), nil
}

func (fs strictFS) Link(oldName, newName string) error {
	fs.written("link", oldName, fs.FS.Link(oldName, newName))
	return nil
}

func (fs strictFS) Rename(oldName, newName string) error {
	fs.written("rename", oldName, fs.FS.Rename(oldName, newName))
	return nil
}

func (fs strictFS) MkdirAll(dir string, mode os.FileMode) error {
	fs.written("make directory", dir, fs.FS.MkdirAll(dir, mode))
	return nil
}

func (fs strictFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	return names, fs.wasRead("list", dir, err)
}

func (fs strictFS) Stat(name string) (vfs.FileInfo, error) {
	info, err := fs.FS.Stat(name)
	return info, fs.wasRead("stat", name, err)
}

type strictFile struct {
	vfs.File
	fs   strictFS
	name string
}

func (f *strictFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	return n, f.fs.wasRead("read", f.name, err)
}

func (f *strictFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	return n, f.fs.wasRead("read", f.name, err)
}

func (f *strictFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return info, f.fs.wasRead("stat", f.name, err)
}

func (f *strictFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.fs.written("write", f.name, err)
	return n, nil
}

func (f *strictFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	f.fs.written("write", f.name, err)
	return n, nil
}

func (f *strictFile) Sync() error {
	f.fs.written("sync", f.name, f.File.Sync())
	return nil
}

func (f *strictFile) SyncData() error {
	f.fs.written("sync", f.name, f.File.SyncData())
	return nil
}

func (f *strictFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	f.fs.written("sync", f.name, err)
	return full, nil
}

func (f *strictFile) Close() error {
	f.fs.written("close", f.name, f.File.Close())
	return nil
}

func writeSynced(fs vfs.FS, path string, content []byte) error {
	file, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if errClose := file.Close(); err == nil {
		err = errClose
	}
	return err
}

func syncDir(fs vfs.FS, dir string) error {
	handle, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = handle.Sync()
	if errClose := handle.Close(); err == nil {
		err = errClose
	}
	return err
}
